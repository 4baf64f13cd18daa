/* How many lanes a device has room for, and what is left for prefix entries: a pure function of the free
 * bytes read from the device, the sizes of the model, and the options. Nothing is allocated and nothing
 * measured here.
 */
#ifndef LW_LANE_ADMIT_H
#define LW_LANE_ADMIT_H

#include "ops/plan.h"

#define LW_ADMIT_CACHE_AUTO UINT64_MAX

typedef struct lw_admit {
    uint64_t free_bytes;          /* read from the device before anything is loaded */
    uint64_t reserve_bytes;       /* left alone */
    uint64_t fixed_bytes;         /* weights and what is small: all but lanes, rounds and entries */
    uint64_t lane_host_bytes;     /* of one lane beside its pages */
    /* Of rounds of so many rows, so many of them with logits; never less for more. UINT64_MAX: they cannot be
     * counted. */
    uint64_t (*round_bytes)(void *context, uint32_t rows_max, uint32_t wanted_max);
    void *round_context;
    uint32_t wanted_rows;         /* with logits, of one lane in one round; all lanes' are at most rows_max */
    uint32_t group_count;
    uint32_t reaches[LW_PLAN_REACHES_MAX];
    uint64_t page_bytes[LW_PLAN_REACHES_MAX];
    uint32_t rows_max;            /* of a round; more than are of use at the context are not taken */
    uint32_t context_model;       /* 0: the model names none */
    uint32_t context;             /* asked for; 0: the smaller of the model's and 32,768 */
    uint32_t lanes;               /* asked for; 0: as many as fit, up to 8 */
    uint64_t cache_bytes;         /* asked for; LW_ADMIT_CACHE_AUTO: what is left, up to 16 GiB and what all
                                     entries could hold; 0: off */
} lw_admit;

typedef struct lw_admitted {
    uint32_t lanes;
    uint32_t context;
    uint32_t rows_max;            /* of one round */
    uint32_t wanted_max;          /* of those, rows with logits */
    uint32_t page_counts[LW_PLAN_REACHES_MAX];  /* of the lanes and of the entries */
    uint64_t lane_bytes;          /* of one lane at the full context */
    uint64_t cache_bytes;
} lw_admitted;

/* LW_BAD_INPUT or LW_NO_ROOM with what was wanted, what is there, and which flag helps; *out is zero then. */
lw_status lw_admit_choose(const lw_admit *in, lw_admitted *out, lw_diag *d) LW_MUST_USE;

#endif
