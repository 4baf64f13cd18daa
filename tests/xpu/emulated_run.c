/* Runs work-groups: every work-item is a fiber with a stack of its own; barriers and sub-group operations
 * switch to the next one. A barrier that not every item reaches, and an item that leaves while others wait,
 * are errors.
 */
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ITEMS_MAX = 1024, STACK_BYTES = 128 << 10, SUB_GROUP = 16, SLOT_BYTES = 64 };

typedef struct fiber {
    void *stack_pointer;
    uint32_t local[3], sub_group, lane;
    uint32_t exchanges; /* alternates the slots, so that a fast lane does not overwrite a slow one's */
    bool done;
} fiber;

/* A meeting of some items: all alive ones have to arrive before any goes on. */
typedef struct meeting { uint32_t alive, arrived, generation; } meeting;

static struct {
    fiber fibers[ITEMS_MAX];
    uint8_t *stacks;
    uint32_t count, current, idle;
    void *main_stack_pointer;
    const emulated_launch *launch;
    uint32_t group[3];
    meeting all, sub_groups[ITEMS_MAX / SUB_GROUP];
    uint8_t slots[ITEMS_MAX / SUB_GROUP][2][SUB_GROUP * SLOT_BYTES];
    char error[256];
} run;

void emulated_switch(void **from, void *to);
__asm__(".text\n"
        ".globl emulated_switch\n"
        ".hidden emulated_switch\n"
        "emulated_switch:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n");

static void fail(const char *why)
{
    if (run.error[0] != '\0') return;
    snprintf(run.error, sizeof run.error, "%s (group %u, %u, item %u)", why, run.group[0], run.group[1],
             run.current);
}

/* The next item that is not done, else back to the host. */
static void go_on(void)
{
    fiber *from = &run.fibers[run.current];
    for (uint32_t i = 1; run.error[0] == '\0' && i <= run.count; i++) {
        const uint32_t next = (run.current + i) % run.count;
        if (run.fibers[next].done) continue;
        if (next == run.current) return;
        run.current = next;
        emulated_switch(&from->stack_pointer, run.fibers[next].stack_pointer);
        return;
    }
    emulated_switch(&from->stack_pointer, run.main_stack_pointer);
}

static void meet(meeting *m)
{
    const uint32_t generation = m->generation;
    if (++m->arrived == m->alive) {
        m->arrived = 0;
        m->generation++;
        run.idle = 0;
        return;
    }
    while (m->generation == generation) {
        if (++run.idle > 4 * run.count + 16) fail("a barrier that not every work-item reaches");
        go_on();
    }
    run.idle = 0;
}

static void leave(meeting *m, const char *why)
{
    m->alive--;
    if (m->arrived > 0) fail(why);
}

static void item_main(void)
{
    fiber *f = &run.fibers[run.current];
    run.launch->fn(run.launch->args);
    f->done = true;
    run.idle = 0;
    leave(&run.all, "a work-item left the kernel while others wait at a barrier");
    leave(&run.sub_groups[f->sub_group], "a lane left the kernel while its sub-group waits for it");
    go_on();
    abort();
}

/* A stack on which the switch finds six registers and item_main as the place to return to. */
static void fiber_prepare(uint32_t index)
{
    const uint32_t *items = run.launch->items;
    fiber *f = &run.fibers[index];
    *f = (fiber){ .local = { index % items[0], index / items[0] % items[1], index / items[0] / items[1] },
                  .sub_group = index / SUB_GROUP, .lane = index % SUB_GROUP };
    void **top = (void **)(void *)(run.stacks + (size_t)(index + 1) * STACK_BYTES) - 2;
    *--top = NULL;
    *--top = (void *)item_main;
    f->stack_pointer = top - 6;
}

static bool group_run(void)
{
    run.all = (meeting){ .alive = run.count };
    run.idle = 0;
    for (uint32_t i = 0; i * SUB_GROUP < run.count; i++) {
        const uint32_t left = run.count - i * SUB_GROUP;
        run.sub_groups[i] = (meeting){ .alive = left < SUB_GROUP ? left : SUB_GROUP };
    }
    for (uint32_t i = 0; i < run.count; i++) fiber_prepare(i);
    run.current = 0;
    emulated_switch(&run.main_stack_pointer, run.fibers[0].stack_pointer);
    return run.error[0] == '\0';
}

bool emulated_run(const emulated_launch *launch, char error[256])
{
    if (run.stacks == NULL) {
        run.stacks = mmap(NULL, (size_t)ITEMS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (run.stacks == MAP_FAILED) abort();
    }
    run.launch = launch;
    run.count = launch->items[0] * launch->items[1] * launch->items[2];
    run.error[0] = '\0';
    bool ok = run.count > 0 && run.count <= ITEMS_MAX;
    if (!ok) snprintf(run.error, sizeof run.error, "a work-group of %u items", run.count);
    const uint64_t groups = (uint64_t)launch->groups[0] * launch->groups[1] * launch->groups[2];
    for (uint64_t i = 0; ok && i < groups; i++) {
        run.group[0] = (uint32_t)(i % launch->groups[0]);
        run.group[1] = (uint32_t)(i / launch->groups[0] % launch->groups[1]);
        run.group[2] = (uint32_t)(i / launch->groups[0] / launch->groups[1]);
        ok = group_run();
    }
    memcpy(error, run.error, sizeof run.error);
    return ok;
}

/* The library's stacks go with it. */
static void __attribute__((destructor)) stacks_free(void)
{
    if (run.stacks != NULL) munmap(run.stacks, (size_t)ITEMS_MAX * STACK_BYTES);
}

static uint32_t local_id(uint32_t dimension) { return run.fibers[run.current].local[dimension]; }
static uint32_t group_id(uint32_t dimension) { return run.group[dimension]; }
static uint32_t local_size(uint32_t dimension) { return run.launch->items[dimension]; }
static uint32_t group_count(uint32_t dimension) { return run.launch->groups[dimension]; }

static void barrier(void)
{
    if (run.all.alive != run.count) fail("a barrier after a work-item left the kernel");
    meet(&run.all);
}

static const void *exchange(const void *value, uint32_t bytes)
{
    fiber *f = &run.fibers[run.current];
    uint8_t *slots = run.slots[f->sub_group][f->exchanges++ % 2];
    if (bytes > SLOT_BYTES) fail("a sub-group operation on more than 64 bytes");
    else memcpy(slots + f->lane * SLOT_BYTES, value, bytes);
    meet(&run.sub_groups[f->sub_group]);
    return slots;
}

const emulated_calls emulated_kernel_calls = {
    local_id, group_id, local_size, group_count, barrier, exchange
};
