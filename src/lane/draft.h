/* Drafts: guesses at what a stream draws next. A draft is kept only if it equals the draw, so a source may be
 * wrong at will: it changes speed and nothing else.
 *
 * lw_draft_source is what the core calls, once a round for all streams that want drafts. The copy drafter
 * below is one, the model's draft head another (head.c).
 */
#ifndef LW_LANE_DRAFT_H
#define LW_LANE_DRAFT_H

#include "base/status.h"

enum { LW_DRAFTS_MAX = 64 }; /* nodes of one window: a limit of the core's tables, not of a source */

/* A tree under the pending token: parents before children, the likelier first among equals. */
typedef struct lw_draft {
    uint32_t count;
    int32_t tokens[LW_DRAFTS_MAX];
    int32_t parents[LW_DRAFTS_MAX];   /* node index; -1: the pending token */
} lw_draft;

/* Up to room drafts are wanted in out for what follows ids[0, count); ids only grow until the next reset. */
typedef struct lw_draft_ask {
    uint32_t lane;
    const int32_t *ids;
    uint32_t count;
    uint32_t room;
    lw_draft *out;           /* empty */
} lw_draft_ask;

typedef struct lw_draft_source {
    void *context;
    /* A new stream sits in this lane. */
    void (*reset)(void *context, uint32_t lane);
    /* Answers the asks of a round, each of another lane. Allocates nothing. */
    void (*propose)(void *context, const lw_draft_ask *asks, uint32_t ask_count);
    /* Of the last proposal's drafts, offered were in a window and kept equalled the draws. */
    void (*judge)(void *context, uint32_t lane, uint32_t offered, uint32_t kept);
} lw_draft_source;

/* Copies from the stream's own tokens: where its last tokens stood before, what followed then is proposed
 * again. The index of n-grams grows with the stream; all of its memory is taken at once. */
typedef struct lw_copies lw_copies;

/* match: tokens that must agree before a copy is proposed (at least 3). */
lw_status lw_copies_make(uint32_t lanes, uint32_t context, uint32_t match, lw_copies **out,
                         lw_diag *d) LW_MUST_USE;
void lw_copies_free(lw_copies *copies);
lw_draft_source lw_copies_source(lw_copies *copies);

#endif
