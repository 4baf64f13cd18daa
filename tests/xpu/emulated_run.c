/* Runs work-groups. A work-item that meets others at a barrier or in a sub-group operation waits on a stack
 * of its own, a fiber, while the rest go on; items that meet nobody run one after another on a single fiber,
 * so that elementwise kernels are plain loops. A barrier that not every item reaches, and an item that leaves
 * while others wait, are errors.
 *
 * Lanes of one sub-group take turns until none of them can go on; then the next sub-group has its turn. So
 * few stacks are in use at a time, and whoever waits is not asked whether it may go on: it is made ready.
 *
 * Work-groups of one launch are shared out between two workers, each with fibers and modules of its own.
 * Groups do not see each other, so that results do not know which worker made them.
 */
#include "emulated.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ITEMS_MAX = 1024,
    SUB_GROUP = 16,
    SUB_GROUPS_MAX = ITEMS_MAX / SUB_GROUP,
    SLOTS_BYTES = SUB_GROUP * 128,  /* what a sub-group's lanes tell each other in one operation */
    SWITCH_REGISTERS = 6,
    /* Seven cache lines apart modulo a page: tops of stacks at one distance of a page would share cache sets.
     */
    STACK_BYTES = (128 << 10) + 7 * 64,
    SHARED_ITEMS_MIN = 1024, /* of a launch: fewer are done before another thread wakes up */
};

typedef struct fiber {
    void *stack_pointer;
    struct fiber *next_free;
    uint32_t item;
} fiber;

/* Sets of lanes, a bit each. One that has begun and not left is ready, or waits for its sub-group or for all.
 */
typedef struct sub_group {
    uint32_t members, alive, ready, waiting, blocked;
    uint32_t end;                   /* items before it */
    uint64_t trace;                 /* of the lane that came first to where others are to come */
    fiber *fibers[SUB_GROUP];
} sub_group;

struct emulated_worker {
    lw_emulated_now now;
    lw_emulated_item items[ITEMS_MAX];
    sub_group sub_groups[SUB_GROUPS_MAX];
    fiber fibers[ITEMS_MAX], *free, *current;
    uint8_t *stacks;
    void *main_stack_pointer;
    const emulated_launch *launch;
    emulated_kernel kernel;
    uint32_t count, started, alive, blocked, fibers_used;
    uint64_t ready;                 /* sub-groups with a ready lane, a bit each */
    /* Two sets in turn: a fast lane does not overwrite what a slow one has yet to read. */
    _Alignas(64) char slots[SUB_GROUPS_MAX][2][SLOTS_BYTES];
    uint64_t error_group;
    char error[256];
};
_Static_assert(SUB_GROUPS_MAX <= 64, "a bit each");
static struct emulated_worker workers[EMULATED_WORKERS];

/* The launch that both workers take groups of; owned by the thread that waits for it. */
static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const emulated_launch *launch;  /* NULL: nothing to help with */
    bool started, helping, stop;
    atomic_uint_fast64_t next;
    atomic_bool failed;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* A new stack starts as if it had called emulated_switch, with its worker in a register that is kept. */
void emulated_switch(void **from, void *to);
void emulated_begin(void);
void emulated_items_run(struct emulated_worker *w);
__asm__(".text\n"
        ".globl emulated_switch\n"
        ".hidden emulated_switch\n"
        "emulated_switch:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
        ".globl emulated_begin\n"
        ".hidden emulated_begin\n"
        ".hidden emulated_items_run\n"
        "emulated_begin:\n"
        "  mov %r12, %rdi\n"
        "  call emulated_items_run\n"
        "  ud2\n");

static void fail(struct emulated_worker *w, const char *why)
{
    if (w->error[0] != '\0') return;
    const uint32_t *group = w->now.group_id;
    w->error_group = group[0] + w->launch->groups[0] * (group[1] + (uint64_t)w->launch->groups[1] * group[2]);
    snprintf(w->error, sizeof w->error, "%s (group %u, %u, item %u)", why, group[0], group[1],
             w->current->item);
}

/* The same from inside an item, which goes no further. */
static void give_up(struct emulated_worker *w, const char *why)
{
    fail(w, why);
    emulated_switch(&w->current->stack_pointer, w->main_stack_pointer);
}

static fiber *fiber_make(struct emulated_worker *w)
{
    fiber *f = &w->fibers[w->fibers_used++];
    void **top = (void **)(void *)(w->stacks + (size_t)w->fibers_used * STACK_BYTES) - 2;
    *--top = (void *)emulated_begin;
    top -= SWITCH_REGISTERS;
    top[3] = w;                     /* r12 */
    f->stack_pointer = top;
    return f;
}

static void switch_to(struct emulated_worker *w, fiber *to)
{
    fiber *from = w->current;
    w->current = to;
    w->now.item = &w->items[to->item];
    emulated_switch(&from->stack_pointer, to->stack_pointer);
}

/* The next item begins, on the fiber that was used last, which is in the cache. */
static fiber *item_begin(struct emulated_worker *w)
{
    fiber *f = w->free != NULL ? w->free : fiber_make(w);
    if (f == w->free) w->free = f->next_free;
    f->item = w->started++;
    sub_group *g = &w->sub_groups[f->item / SUB_GROUP];
    g->fibers[f->item % SUB_GROUP] = f;
    g->ready |= 1u << f->item % SUB_GROUP;
    w->ready |= UINT64_C(1) << f->item / SUB_GROUP;
    return f;
}

/* Who runs when the lane does not: another of its sub-group, else another sub-group. NULL: nobody can. */
static fiber *next_of(struct emulated_worker *w, sub_group *g, uint32_t lane)
{
    if (w->started < g->end) return item_begin(w);
    if (g->ready == 0) {
        w->ready &= ~(UINT64_C(1) << (g - w->sub_groups));
        if (g->waiting != 0) return NULL;
        if (w->started < w->count) return item_begin(w);
        if (w->ready == 0) return NULL;
        g = &w->sub_groups[__builtin_ctzll(w->ready)];
    }
    const uint32_t behind = g->ready >> lane << lane;
    return g->fibers[__builtin_ctz(behind != 0 ? behind : g->ready)];
}

static void go_on(struct emulated_worker *w, sub_group *g, uint32_t lane)
{
    fiber *next = next_of(w, g, lane);
    if (next == NULL) give_up(w, "a barrier or sub-group operation that not every work-item reaches");
    switch_to(w, next);
}

/* Lanes that come to one place have to have read the same blocks on their way. */
static bool trace_agrees(sub_group *g, const lw_emulated_item *item, bool is_first)
{
    if (is_first) g->trace = item->trace;
    return g->trace == item->trace;
}
static const char lanes_disagree[] = "a block operation whose lanes name several addresses";

static void barrier(struct emulated_worker *w)
{
    const lw_emulated_item *item = w->now.item;
    sub_group *g = &w->sub_groups[item->sub_group];
    const uint32_t bit = 1u << item->lane;
    if (w->alive != w->count) give_up(w, "a barrier after a work-item left the kernel");
    if (!trace_agrees(g, item, g->blocked == 0)) give_up(w, lanes_disagree);
    g->ready &= ~bit;
    g->blocked |= bit;
    if (++w->blocked < w->count) {
        go_on(w, g, item->lane);
        return;
    }
    w->blocked = 0;
    for (uint32_t i = 0; i < w->now.sub_groups; i++) {
        w->sub_groups[i].ready = w->sub_groups[i].blocked;
        w->sub_groups[i].blocked = 0;
    }
    w->ready = ~UINT64_C(0) >> (64 - w->now.sub_groups);
}

static void *meet(struct emulated_worker *w)
{
    lw_emulated_item *item = w->now.item;
    sub_group *g = &w->sub_groups[item->sub_group];
    const uint32_t bit = 1u << item->lane;
    char *slots = item->slots;
    if (g->alive != g->members) give_up(w, "a sub-group operation after a lane left the kernel");
    if (!trace_agrees(g, item, g->waiting == 0)) give_up(w, lanes_disagree);
    item->slots = w->slots[item->sub_group][slots == w->slots[item->sub_group][0]];
    g->ready &= ~bit;
    g->waiting |= bit;
    if (g->waiting == g->members) {
        g->ready = g->waiting;
        g->waiting = 0;
        w->now.is_last = true;
    } else {
        go_on(w, g, item->lane);
        w->now.is_last = false;
    }
    return slots;
}

static void leave(struct emulated_worker *w, sub_group *g, const lw_emulated_item *item)
{
    if (w->blocked > 0) fail(w, "a work-item left the kernel while others wait at a barrier");
    if (g->waiting != 0) fail(w, "a lane left the kernel while its sub-group waits for it");
    if (!trace_agrees(g, item, g->alive == g->members)) fail(w, lanes_disagree);
    g->ready &= ~(1u << item->lane);
    g->alive &= ~(1u << item->lane);
    w->alive--;
}

/* What a fiber does: one item after another; between them it is free. */
void emulated_items_run(struct emulated_worker *w)
{
    for (;;) {
        w->kernel(w->launch->args);
        fiber *f = w->current, *next = NULL;
        const lw_emulated_item *item = &w->items[f->item];
        sub_group *g = &w->sub_groups[item->sub_group];
        leave(w, g, item);
        f->next_free = w->free;
        w->free = f;
        if (w->error[0] == '\0') next = next_of(w, g, item->lane);
        if (next == f) w->now.item = &w->items[f->item];
        else if (next != NULL) switch_to(w, next);
        else emulated_switch(&f->stack_pointer, w->main_stack_pointer);
    }
}

static void group_run(struct emulated_worker *w, uint64_t index)
{
    const uint32_t *groups = w->launch->groups;
    w->now.group_id[0] = (uint32_t)(index % groups[0]);
    w->now.group_id[1] = (uint32_t)(index / groups[0] % groups[1]);
    w->now.group_id[2] = (uint32_t)(index / groups[0] / groups[1]);
    for (uint32_t i = 0; i < w->now.sub_groups; i++) w->sub_groups[i].alive = w->sub_groups[i].members;
    w->alive = w->count;
    w->started = 0;
    w->current = item_begin(w);
    w->now.item = &w->items[0];
    emulated_switch(&w->main_stack_pointer, w->current->stack_pointer);
}

static void launch_begin(struct emulated_worker *w, const emulated_launch *launch)
{
    if (w->stacks == NULL) {
        w->stacks = mmap(NULL, (size_t)ITEMS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (w->stacks == MAP_FAILED) abort();
    }
    const uint32_t *items = launch->items;
    w->launch = launch;
    w->kernel = launch->kernels[w - workers];
    w->error[0] = '\0';
    w->count = items[0] * items[1] * items[2];
    w->free = NULL;
    w->fibers_used = w->blocked = 0;
    w->ready = 0;
    w->now.reduce = launch->reduce;
    w->now.has_matrix = launch->has_matrix;
    w->now.sub_groups = (w->count + SUB_GROUP - 1) / SUB_GROUP;
    memcpy(w->now.group_count, launch->groups, sizeof w->now.group_count);
    memcpy(w->now.local_size, items, sizeof w->now.local_size);
    for (uint32_t i = 0; i < w->now.sub_groups; i++) {
        const uint32_t left = w->count - i * SUB_GROUP, members = left < SUB_GROUP ? left : SUB_GROUP;
        w->sub_groups[i] = (sub_group){ .members = (1u << members) - 1, .end = i * SUB_GROUP + members };
    }
    for (uint32_t i = 0; i < w->count; i++) {
        w->items[i] = (lw_emulated_item){
            .local_id = { i % items[0], i / items[0] % items[1], i / items[0] / items[1] },
            .sub_group = i / SUB_GROUP, .lane = i % SUB_GROUP, .slots = w->slots[i / SUB_GROUP][0] };
    }
}

/* Takes groups until there are none. */
static void groups_run(struct emulated_worker *w, const emulated_launch *launch)
{
    const uint64_t groups = (uint64_t)launch->groups[0] * launch->groups[1] * launch->groups[2];
    launch_begin(w, launch);
    while (!atomic_load(&shared.failed)) {
        const uint64_t index = atomic_fetch_add(&shared.next, 1);
        if (index >= groups) return;
        group_run(w, index);
        if (w->error[0] != '\0') atomic_store(&shared.failed, true);
    }
}

static void *helper_main(void *unused)
{
    pthread_mutex_lock(&shared.lock);
    while (!shared.stop) {
        const emulated_launch *launch = shared.launch;
        if (launch == NULL) {
            pthread_cond_wait(&shared.changed, &shared.lock);
            continue;
        }
        shared.helping = true;
        pthread_mutex_unlock(&shared.lock);
        groups_run(&workers[1], launch);
        pthread_mutex_lock(&shared.lock);
        shared.launch = NULL;
        shared.helping = false;
        pthread_cond_broadcast(&shared.changed);
    }
    pthread_mutex_unlock(&shared.lock);
    return unused;
}

static void help_ask(const emulated_launch *launch)
{
    pthread_mutex_lock(&shared.lock);
    if (!shared.started) shared.started = pthread_create(&shared.thread, NULL, helper_main, NULL) == 0;
    shared.launch = launch;
    pthread_cond_broadcast(&shared.changed);
    pthread_mutex_unlock(&shared.lock);
}

/* No group is taken any more; waits for the one that the helper may be at. */
static void help_end(void)
{
    pthread_mutex_lock(&shared.lock);
    shared.launch = NULL;
    while (shared.helping) pthread_cond_wait(&shared.changed, &shared.lock);
    pthread_mutex_unlock(&shared.lock);
}

bool emulated_run(const emulated_launch *launch, char error[256])
{
    const uint64_t groups = (uint64_t)launch->groups[0] * launch->groups[1] * launch->groups[2];
    const uint64_t items = (uint64_t)launch->items[0] * launch->items[1] * launch->items[2];
    error[0] = '\0';
    if (items == 0 || items > ITEMS_MAX) {
        snprintf(error, 256, "a work-group of %llu items", (unsigned long long)items);
        return false;
    }
    const bool is_shared = launch->workers > 1 && groups > 1 && groups * items >= SHARED_ITEMS_MIN;
    atomic_store(&shared.next, 0);
    atomic_store(&shared.failed, false);
    for (uint32_t i = 0; i < EMULATED_WORKERS; i++) workers[i].error[0] = '\0';
    if (is_shared) help_ask(launch);
    groups_run(&workers[0], launch);
    if (is_shared) help_end();
    for (uint32_t i = 0; i < EMULATED_WORKERS; i++) {
        const struct emulated_worker *w = &workers[i];
        const bool is_first = error[0] == '\0' || w->error_group < workers[0].error_group;
        if (w->error[0] != '\0' && is_first) memcpy(error, w->error, sizeof w->error);
    }
    return error[0] == '\0';
}

/* The library's thread and stacks go with it. */
static void __attribute__((destructor)) workers_free(void)
{
    pthread_mutex_lock(&shared.lock);
    shared.stop = true;
    pthread_cond_broadcast(&shared.changed);
    pthread_mutex_unlock(&shared.lock);
    if (shared.started) pthread_join(shared.thread, NULL);
    for (uint32_t i = 0; i < EMULATED_WORKERS; i++) {
        if (workers[i].stacks != NULL) munmap(workers[i].stacks, (size_t)ITEMS_MAX * STACK_BYTES);
    }
}

const emulated_calls emulated_kernel_calls = { barrier, meet, give_up };

struct emulated_worker *emulated_worker_at(uint32_t index)
{
    return &workers[index];
}

const lw_emulated_now *emulated_now_of(const struct emulated_worker *w)
{
    return &w->now;
}
