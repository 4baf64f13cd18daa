/* `lanewise receipts`: the five equalities, shown on a model or a server that is asked like any other.
 *
 *   drafted == plain     concurrent == alone     resumed == fresh     any cut == whole     chat == the same
 * ids
 *
 * What answers is behind lw_asker; the laws (receipts_laws.c) know nothing else. Each law has a planted
 * control: the same comparison over a prompt whose last token is another one, which has to be caught.
 */
#ifndef LW_CLI_RECEIPTS_H
#define LW_CLI_RECEIPTS_H

#include "base/sha256.h"
#include "base/status.h"

enum { LW_RECEIPT_TOGETHER_MAX = 8, LW_RECEIPT_CASES_MAX = 15 };

/* Conversations to ask, as JSON lists of messages. */
extern const char *const lw_receipt_cases[LW_RECEIPT_CASES_MAX];

typedef struct lw_ask {
    uint32_t item;           /* of lw_receipt_cases */
    bool is_sampled;         /* else greedy */
    bool drafts;
    bool by_ids;             /* the conversation's token ids instead of its messages */
    uint32_t altered;        /* 0: as it is; else the last token is another one, by ids */
} lw_ask;

typedef struct lw_answer {
    char sha[LW_TOKEN_SHA_CHARS + 1];
    uint32_t tokens, cached_tokens, drafts_kept;
} lw_answer;

/* Ways in which the same thing is asked. */
typedef enum lw_way {
    LW_WAY_FRESH,  /* nothing beside it, nothing kept, no drafts, the prompt in the largest chunks */
    LW_WAY_SERVED, /* all that makes it fast */
    LW_WAY_CUT,    /* small chunks */
    LW_WAY_COUNT
} lw_way;

typedef struct lw_asker {
    void *context;
    bool has_cut;            /* LW_WAY_CUT can be had */
    /* What is asked next is answered in this way. */
    lw_status (*turn)(void *context, lw_way way, lw_diag *d);
    /* Asks count things at once. */
    lw_status (*ask)(void *context, const lw_ask *asks, size_t count, lw_answer *answers, lw_diag *d);
} lw_asker;

/* What a law found. */
typedef struct lw_receipt {
    const char *name;
    uint32_t equal[2], asked[2];       /* greedy, sampled */
    bool control_caught;
    uint64_t evidence;                 /* how much of it there was: drafts kept, tokens resumed */
    const char *evidence_name;         /* NULL: none is needed */
    char difference[160];              /* the first one; empty: none */
} lw_receipt;

enum { LW_RECEIPTS_MAX = 8 };

typedef struct lw_receipts_options {
    uint32_t cases;                    /* the first so many are asked */
    void (*progress)(void *context, uint64_t done, uint64_t all);
    void *progress_context;
} lw_receipts_options;

/* Runs every law. count is how many receipts there are, also after a failure. */
lw_status lw_receipts_collect(const lw_asker *asker, const lw_receipts_options *options,
                              lw_receipt receipts[LW_RECEIPTS_MAX], size_t *count, lw_diag *d) LW_MUST_USE;

/* Everything was equal, and the control was caught. */
bool lw_receipt_holds(const lw_receipt *receipt);
/* What the law is about took place: without a draft kept, drafts were not shown to be harmless. */
bool lw_receipt_is_shown(const lw_receipt *receipt);

#endif
