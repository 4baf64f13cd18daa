/* Block arena; see arena.h. Blocks double from 4 KiB to 1 MiB so that small arenas stay small. */
#include "base/arena.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES_MIN = 4096, BLOCK_BYTES_MAX = 1 << 20, ALIGN_BYTES = 16 };

struct lw_arena_block {
    lw_arena_block *older;
    size_t room_bytes;
    size_t used_bytes;
    size_t pad; /* keeps the payload 16-byte aligned */
};
_Static_assert(sizeof(lw_arena_block) % ALIGN_BYTES == 0, "the payload after the header stays aligned");

void lw_arena_init(lw_arena *arena, size_t bytes_max)
{
    *arena = (lw_arena){ .bytes_max = bytes_max };
}

static void free_blocks(lw_arena_block *block)
{
    while (block != NULL) {
        lw_arena_block *older = block->older;
        free(block);
        block = older;
    }
}

void lw_arena_deinit(lw_arena *arena)
{
    free_blocks(arena->blocks);
    arena->blocks = NULL;
    arena->bytes_taken = 0;
}

void lw_arena_reset(lw_arena *arena)
{
    if (arena->blocks != NULL) {
        free_blocks(arena->blocks->older);
        arena->blocks->older = NULL;
        arena->blocks->used_bytes = 0;
    }
    arena->bytes_taken = 0;
}

static lw_arena_block *block_make(lw_arena *arena, size_t bytes)
{
    size_t room = arena->blocks == NULL ? BLOCK_BYTES_MIN : arena->blocks->room_bytes * 2;
    room = size_max(size_min(room, BLOCK_BYTES_MAX), bytes);
    size_t whole;
    if (!size_add(room, sizeof(lw_arena_block), &whole)) return NULL;
    lw_arena_block *block = malloc(whole);
    if (block == NULL) return NULL;
    *block = (lw_arena_block){ .older = arena->blocks, .room_bytes = room };
    arena->blocks = block;
    return block;
}

void *lw_arena_take(lw_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    const size_t padded = size_round_up(size_max(bytes, 1), ALIGN_BYTES);
    size_t taken;
    if (!size_add(arena->bytes_taken, padded, &taken) || taken > arena->bytes_max) return NULL;
    lw_arena_block *block = arena->blocks;
    if (block == NULL || block->room_bytes - block->used_bytes < padded) {
        block = block_make(arena, padded);
        if (block == NULL) return NULL;
    }
    char *object = (char *)(block + 1) + block->used_bytes;
    block->used_bytes += padded;
    arena->bytes_taken = taken;
    arena->bytes_peak = size_max(arena->bytes_peak, taken);
    memset(object, 0, padded);
    return object;
}

void *lw_arena_take_array(lw_arena *arena, size_t count, size_t item_bytes)
{
    size_t bytes;
    return size_mul(count, item_bytes, &bytes) ? lw_arena_take(arena, bytes) : NULL;
}

char *lw_arena_copy_text(lw_arena *arena, const char *bytes, size_t count)
{
    size_t whole;
    if (!size_add(count, 1, &whole)) return NULL;
    char *text = lw_arena_take(arena, whole);
    if (text != NULL && count > 0) memcpy(text, bytes, count);
    return text;
}
