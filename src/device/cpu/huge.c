/* Large aligned memory by mmap. A reservation is cut to a huge page's boundary, since a kernel gives huge pages only
 * to ranges that hold whole ones; the advice itself is best effort.
 */
#include "device/cpu/huge.h"

#include "base/size.h"

#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_BYTES = 2 << 20, PAGE_BYTES = 64 << 10 /* whole pages of every common size */ };

static size_t mapped_bytes(size_t bytes)
{
    return bytes < HUGE_BYTES ? size_round_up(bytes, PAGE_BYTES) : size_round_up(bytes, HUGE_BYTES);
}

void *lw_huge_make(size_t bytes)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2) return NULL;
    const size_t wanted = mapped_bytes(bytes);
    const size_t slack = wanted < HUGE_BYTES ? 0 : HUGE_BYTES;
    uint8_t *const at = mmap(NULL, wanted + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    if (slack == 0) return at;

    const size_t before = (HUGE_BYTES - (uintptr_t)at % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0) munmap(at, before);
    if (before < slack) munmap(at + before + wanted, slack - before);
    (void)madvise(at + before, wanted, MADV_HUGEPAGE);
    return at + before;
}

void lw_huge_free(void *memory, size_t bytes)
{
    if (memory != NULL) munmap(memory, mapped_bytes(bytes));
}
