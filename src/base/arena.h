/* One lifetime, one arena: objects that die together are taken from one arena and freed by one call.
 * Memory comes in blocks; an arena never moves what it gave. A limit makes growth from outside data finite.
 * Not thread-safe: an arena has one owner at a time.
 */
#ifndef LW_BASE_ARENA_H
#define LW_BASE_ARENA_H

#include "base/status.h"

typedef struct lw_arena_block lw_arena_block;

typedef struct lw_arena {
    lw_arena_block *blocks; /* newest first */
    size_t bytes_taken;
    size_t bytes_peak;
    size_t bytes_max;       /* taking more returns NULL */
} lw_arena;

/* Makes an empty arena that will give at most bytes_max bytes; allocates nothing yet. */
void lw_arena_init(lw_arena *arena, size_t bytes_max);

/* Frees everything; the arena is empty and usable again. */
void lw_arena_deinit(lw_arena *arena);

/* bytes zeroed bytes aligned to 16, or NULL when the limit or the system's memory is reached. */
void *lw_arena_take(lw_arena *arena, size_t bytes) LW_MUST_USE;

/* count * item_bytes with an overflow check; NULL as above. */
void *lw_arena_take_array(lw_arena *arena, size_t count, size_t item_bytes) LW_MUST_USE;

/* A NUL-terminated copy of bytes[0, count); NULL as above. */
char *lw_arena_copy_text(lw_arena *arena, const char *bytes, size_t count) LW_MUST_USE;

/* Forgets every object but keeps the newest block for reuse. */
void lw_arena_reset(lw_arena *arena);

#endif
