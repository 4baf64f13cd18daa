/* Runs work-groups. A work-item that meets others at a barrier or a sub-group operation waits on a stack of
 * its own, a fiber, while the rest go on; items that meet nobody run one after another on a single fiber, so
 * that elementwise kernels are plain loops. A barrier that not every item reaches, and an item that leaves
 * while others wait, are errors.
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
    SLOT_BYTES = 64,
    SWITCH_REGISTERS = 6,
    /* Seven cache lines apart modulo a page: tops of stacks at one distance of a page would share cache sets.
     */
    STACK_BYTES = (128 << 10) + 7 * 64,
    SHARED_ITEMS_MIN = 1024, /* of a launch: fewer are done before another thread wakes up */
};

typedef struct fiber {
    void *stack_pointer;
    struct fiber *next, *previous;  /* a ring of all that run an item */
    uint32_t item;
} fiber;

/* A meeting of some items: all have to arrive before any goes on. */
typedef struct meeting { uint32_t members, alive, arrived, generation; } meeting;

struct emulated_worker {
    lw_emulated_now now;
    lw_emulated_item items[ITEMS_MAX];
    uint8_t exchanges[ITEMS_MAX];   /* alternates the slots: a fast lane does not overwrite a slow one's */
    fiber fibers[ITEMS_MAX];
    uint8_t *stacks;
    fiber *current;
    void *main_stack_pointer;
    const emulated_launch *launch;
    emulated_kernel kernel;
    uint32_t count, started, fibers_used, idle;
    meeting all, sub_groups[ITEMS_MAX / SUB_GROUP];
    uint8_t slots[ITEMS_MAX / SUB_GROUP][2][SUB_GROUP * SLOT_BYTES];
    uint64_t error_group;
    char error[256];
};
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

/* Lets the others run: an item that has not begun, else the next one that waits. */
static void go_on(struct emulated_worker *w)
{
    fiber *f = w->current;
    if (w->started < w->count) {
        fiber *more = fiber_make(w);
        more->next = f->next;
        more->previous = f;
        f->next->previous = more;
        f->next = more;
        w->idle = 0;
        switch_to(w, more);
    } else if (f->next != f) {
        switch_to(w, f->next);
    }
}

static void meet(struct emulated_worker *w, meeting *m)
{
    const uint32_t generation = m->generation;
    if (++m->arrived == m->alive) {
        m->arrived = 0;
        m->generation++;
        w->idle = 0;
        return;
    }
    while (m->generation == generation) {
        if (++w->idle > 4 * w->count + 16) give_up(w, "a barrier that not every work-item reaches");
        go_on(w);
    }
    w->idle = 0;
}

static void leave(struct emulated_worker *w, meeting *m, const char *why)
{
    m->alive--;
    if (m->arrived > 0) fail(w, why);
}

static void item_run(struct emulated_worker *w, uint32_t index)
{
    w->current->item = index;
    w->now.item = &w->items[index];
    w->kernel(w->launch->args);
    w->idle = 0;
    leave(w, &w->all, "a work-item left the kernel while others wait at a barrier");
    leave(w, &w->sub_groups[w->items[w->current->item].sub_group],
          "a lane left the kernel while its sub-group waits for it");
}

/* What a fiber does: items that have not begun, one after another; then it is never run again. */
void emulated_items_run(struct emulated_worker *w)
{
    while (w->error[0] == '\0' && w->started < w->count) item_run(w, w->started++);
    fiber *f = w->current;
    if (w->error[0] != '\0' || f->next == f) emulated_switch(&f->stack_pointer, w->main_stack_pointer);
    f->next->previous = f->previous;
    f->previous->next = f->next;
    switch_to(w, f->next);
    abort();
}

static void group_run(struct emulated_worker *w, uint64_t index)
{
    const uint32_t *groups = w->launch->groups;
    w->now.group_id[0] = (uint32_t)(index % groups[0]);
    w->now.group_id[1] = (uint32_t)(index / groups[0] % groups[1]);
    w->now.group_id[2] = (uint32_t)(index / groups[0] / groups[1]);
    w->all = (meeting){ .members = w->count, .alive = w->count };
    for (uint32_t i = 0; i < w->now.sub_groups; i++) {
        const uint32_t left = w->count - i * SUB_GROUP, members = left < SUB_GROUP ? left : SUB_GROUP;
        w->sub_groups[i] = (meeting){ .members = members, .alive = members };
    }
    w->started = 0;
    w->fibers_used = 0;
    w->idle = 0;
    w->current = fiber_make(w);
    w->current->next = w->current->previous = w->current;
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
    memset(w->exchanges, 0, sizeof w->exchanges);
    w->now.reduce = launch->reduce;
    w->now.has_matrix = launch->has_matrix;
    memcpy(w->now.group_count, launch->groups, sizeof w->now.group_count);
    if (memcmp(w->now.local_size, items, sizeof w->now.local_size) == 0) return;
    memcpy(w->now.local_size, items, sizeof w->now.local_size);
    w->count = items[0] * items[1] * items[2];
    w->now.sub_groups = (w->count + SUB_GROUP - 1) / SUB_GROUP;
    for (uint32_t i = 0; i < w->count; i++) {
        w->items[i] = (lw_emulated_item){
            .local_id = { i % items[0], i / items[0] % items[1], i / items[0] / items[1] },
            .sub_group = i / SUB_GROUP, .lane = i % SUB_GROUP };
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

static void barrier(struct emulated_worker *w)
{
    if (w->all.alive != w->all.members) give_up(w, "a barrier after a work-item left the kernel");
    meet(w, &w->all);
}

static const void *exchange(struct emulated_worker *w, const void *value, uint32_t bytes)
{
    const lw_emulated_item *item = w->now.item;
    meeting *m = &w->sub_groups[item->sub_group];
    uint8_t *slots = w->slots[item->sub_group][w->exchanges[item - w->items]++ % 2];
    if (m->alive != m->members) give_up(w, "a sub-group operation after a lane left the kernel");
    if (bytes > SLOT_BYTES) give_up(w, "a sub-group operation on more than 64 bytes");
    memcpy(slots + item->lane * SLOT_BYTES, value, bytes);
    meet(w, m);
    return slots;
}

const emulated_calls emulated_kernel_calls = { barrier, exchange, give_up };

struct emulated_worker *emulated_worker_at(uint32_t index)
{
    return &workers[index];
}

const lw_emulated_now *emulated_now_of(const struct emulated_worker *w)
{
    return &w->now;
}
