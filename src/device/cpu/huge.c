/* Large aligned memory by mmap. A reservation begins at a huge page's boundary, since a kernel gives huge
 * pages only to ranges that hold whole ones. Only the whole ones are asked for: the rest of the last would be
 * memory for nothing.
 */
#include "device/cpu/huge.h"

#include "base/size.h"

#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_BYTES = 2 << 20, PAGE_BYTES = 64 << 10 /* whole pages of every common size */ };

void *lw_huge_make(size_t bytes)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2) return NULL;
    const size_t wanted = size_round_up(bytes, PAGE_BYTES);
    const size_t slack = wanted < HUGE_BYTES ? 0 : HUGE_BYTES;
    uint8_t *const at =
        mmap(NULL, wanted + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    if (slack == 0) return at;

    const size_t before = (HUGE_BYTES - (uintptr_t)at % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0) munmap(at, before);
    if (before < slack) munmap(at + before + wanted, slack - before);
    (void)madvise(at + before, wanted / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
    return at + before;
}

void lw_huge_free(void *memory, size_t bytes)
{
    if (memory != NULL) munmap(memory, size_round_up(bytes, PAGE_BYTES));
}
