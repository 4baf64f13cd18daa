/* Drawing the rows of a round in waves, for verify.c, which walks along the windows, and those of a draft
 * head's step, for head.c. Part of core_internal.h,
 * which says what a lane and a drawn token are.
 */
#ifndef LW_LANE_DRAWS_H
#define LW_LANE_DRAWS_H

#include "lane/core.h"

typedef struct lw__lane lw__lane;
typedef struct lw__drawn lw__drawn;

/* One row that is drawn: what threads read and fill. */
typedef struct lw__draw {
    const lw__lane *lane;
    const float *logits;     /* [vocab] raw */
    uint32_t position;       /* of the token */
    int32_t node;            /* index of the row's draft; -1: the pending token; of a chain: its row */
    bool is_draft;           /* a head's: nobody is told its log-probabilities */
    struct lw__draw *next;   /* the row that its walk reaches next if this one's first draft is right */
    lw__drawn *drawn;
    bool is_known;           /* the device found it: logits are not there */
    lw_status status;
    lw_diag diag;            /* of status */
} lw__draw;

/* Where a share's walk along its window is. */
typedef struct lw__walk {
    int32_t node;            /* its next row's draft; -1: the pending token */
    bool goes_on;
    uint32_t drawing;        /* rows of it in the wave in hand, from first to last */
    lw__draw *first, *last;
} lw__walk;

/* Scratch of one part of a wave. */
typedef struct lw__drawer {
    lw_sampler *sampler;
    float *logits;           /* [vocab] a row with penalties */
} lw__drawer;

typedef struct lw__draws {
    lw__drawer *drawers;     /* [drawer_count] */
    uint32_t drawer_count;
    uint64_t work_least;     /* logits looked at that are worth a thread */
    lw__draw *items;         /* [lanes + drawer_count] of the wave in hand */
    uint32_t count;
    lw__walk walks[LW_CORE_LANES_MAX];   /* of the round's shares */
} lw__draws;

lw_status lw__draws_init(lw_core *core, lw_diag *d) LW_MUST_USE;
void lw__draws_deinit(lw_core *core);
/* Draws all items of the wave in hand whose status is LW_OK. */
void lw__draws_run(lw_core *core);
/* Whether a row of this request is worth a thread of its own. */
bool lw__draws_spread(const lw_core *core, const lw_request *request);

#endif
