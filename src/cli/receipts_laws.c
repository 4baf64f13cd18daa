/* The laws of `lanewise receipts` and what is asked for them. */
#include "cli/receipts.h"

#include <stdio.h>
#include <string.h>

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define BOT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"}"

#define LOG_RULE \
    "You keep the log of a harbour. Write down what is said, in the order in which it is said, and add " \
    "nothing of your own. Names of ships are written as they are spelled."
#define LOG_DAY \
    "At six the Anna Maria came in with salt and two passengers. At seven the pilot went out again. At " \
    "eight the wind turned to the north and three boats asked for a berth, which they got at the long " \
    "quay. Sum that up in one sentence."
#define COUNT_RULE "Count from 5 to 21."
#define COUNT "5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21"

/* The first four are the quick ones: short, long, with turns, and one whose answer stands in it already, so
 * that drafts are copied from there. */
const char *const lw_receipt_cases[LW_RECEIPT_CASES_MAX] = {
    "[" USER("Count to five.") "]",
    "[" SYSTEM(LOG_RULE) "," USER(LOG_DAY) "]",
    "[" USER("Name a colour.") "," BOT("Blue.") "," USER("Another one, and say why.") "]",
    "[" USER(COUNT_RULE) "," BOT(COUNT) "," USER(COUNT_RULE) "]",
    "[" USER("What is a lane?") "]",
    "[" USER("Write a function in C that adds two numbers.") "]",
    "[" SYSTEM("Answer in one word.") "," USER("Is water wet?") "]",
    "[" USER("Translate to German: the ship is in the harbour.") "]",
    "[" USER("List the months of the year.") "]",
    "[" USER("a") "]",
    "[" USER("17 + 25 =") "]",
    "[" USER("Why is the sky dark at night?") "," BOT("Because the universe had a beginning.") ","
        USER("Explain that to a child.") "," BOT("Light needs time to get here.") "," USER("And then?") "]",
    "[" USER("Write JSON with the keys name and age.") "]",
    "[" USER("\\u00fcber \\ud83d\\ude00 \\u6e2f na\\u00efve") "]",
    "[" SYSTEM("Be brief.") "," USER("Tell a story about a lighthouse and a fog horn.") "]",
};

enum { SAMPLINGS = 2, CONTROL_TRIES = 8 };

typedef struct collector {
    const lw_asker *asker;
    const lw_receipts_options *options;
    lw_answer fresh[LW_RECEIPT_CASES_MAX][SAMPLINGS];
    uint64_t asked, to_ask;
    lw_diag *d;
} collector;

typedef struct law {
    const char *name, *evidence_name;
    lw_way way;
    uint32_t together;
    bool drafts, by_ids;
} law;

static const law laws[] = {
    { "drafted == plain", "drafts kept", LW_WAY_SERVED, 1, true, false },
    { "2 at once == alone", NULL, LW_WAY_SERVED, 2, true, false },
    { "4 at once == alone", NULL, LW_WAY_SERVED, 4, true, false },
    { "8 at once == alone", NULL, LW_WAY_SERVED, 8, true, false },
    { "resumed == fresh", "tokens resumed", LW_WAY_SERVED, 1, false, false },
    { "chat == the same ids", NULL, LW_WAY_SERVED, 1, false, true },
    { "any cut == whole", NULL, LW_WAY_CUT, 1, false, false },
};
enum { LAW_COUNT = sizeof laws / sizeof laws[0] };
_Static_assert((int)LAW_COUNT <= (int)LW_RECEIPTS_MAX, "every law has a receipt");

static bool is_equal(const lw_answer *a, const lw_answer *b)
{
    return a->tokens == b->tokens && strcmp(a->sha, b->sha) == 0;
}

static lw_status ask(collector *c, const lw_ask *asks, size_t count, lw_answer *answers)
{
    const lw_status status = c->asker->ask(c->asker->context, asks, count, answers, c->d);
    c->asked += count;
    if (c->options->progress != NULL)
        c->options->progress(c->options->progress_context, c->asked < c->to_ask ? c->asked : c->to_ask,
                             c->to_ask);
    return status;
}

static void compare(const collector *c, const lw_ask *asked, const lw_answer *answer, lw_receipt *receipt)
{
    const lw_answer *fresh = &c->fresh[asked->item][asked->is_sampled];
    receipt->asked[asked->is_sampled]++;
    if (is_equal(fresh, answer)) {
        receipt->equal[asked->is_sampled]++;
    } else if (receipt->difference[0] == '\0') {
        snprintf(receipt->difference, sizeof receipt->difference,
                 "conversation %u, %s: %u tokens %.12s, alone and fresh %u tokens %.12s", asked->item,
                 asked->is_sampled ? "sampled" : "greedy", answer->tokens, answer->sha, fresh->tokens,
                 fresh->sha);
    }
}

/* A last token of other choice changes a reply, though not every choice does: one of a few has to show. */
static lw_status control_run(collector *c, const law *l, lw_receipt *receipt)
{
    for (uint32_t i = 0; i < CONTROL_TRIES && !receipt->control_caught; i++) {
        lw_ask asks[LW_RECEIPT_TOGETHER_MAX];
        lw_answer answers[LW_RECEIPT_TOGETHER_MAX];
        for (uint32_t j = 0; j < l->together; j++)
            asks[j] = (lw_ask){ .item = (i + j) % c->options->cases, .drafts = l->drafts, .by_ids = true,
                                .altered = j == 0 ? 1 + i : 0 };
        const lw_status status = ask(c, asks, l->together, answers);
        if (status != LW_OK) return status;
        receipt->control_caught = !is_equal(&c->fresh[asks[0].item][0], &answers[0]);
    }
    return LW_OK;
}

static lw_status law_run(collector *c, const law *l, lw_receipt *receipt)
{
    *receipt = (lw_receipt){ .name = l->name, .evidence_name = l->evidence_name };
    lw_ask asks[LW_RECEIPT_TOGETHER_MAX];
    lw_answer answers[LW_RECEIPT_TOGETHER_MAX];
    const uint32_t all = c->options->cases * SAMPLINGS;
    for (uint32_t begin = 0; begin < all; begin += l->together) {
        /* The last group is filled up from the beginning, so that it is as large as the law says. */
        for (uint32_t i = 0; i < l->together; i++) {
            const uint32_t at = (begin + i) % all;
            asks[i] = (lw_ask){ .item = at / SAMPLINGS,
                                .is_sampled = at % SAMPLINGS == 1,
                                .drafts = l->drafts,
                                .by_ids = l->by_ids };
        }
        const lw_status status = ask(c, asks, l->together, answers);
        if (status != LW_OK) return status;
        for (uint32_t i = 0; i < l->together; i++) {
            compare(c, &asks[i], &answers[i], receipt);
            receipt->evidence += l->drafts ? answers[i].drafts_kept : answers[i].cached_tokens;
        }
    }
    return control_run(c, l, receipt);
}

static lw_status fresh_run(collector *c)
{
    lw_status status = c->asker->turn(c->asker->context, LW_WAY_FRESH, c->d);
    for (uint32_t at = 0; at < c->options->cases * SAMPLINGS && status == LW_OK; at++) {
        const lw_ask one = { .item = at / SAMPLINGS, .is_sampled = at % SAMPLINGS == 1 };
        status = ask(c, &one, 1, &c->fresh[one.item][one.is_sampled]);
    }
    return status;
}

lw_status lw_receipts_collect(const lw_asker *asker, const lw_receipts_options *options,
                              lw_receipt receipts[LW_RECEIPTS_MAX], size_t *count, lw_diag *d)
{
    LW_ASSERT(options->cases > 0 && options->cases <= LW_RECEIPT_CASES_MAX);
    collector c = { .asker = asker, .options = options, .d = d };
    c.to_ask = (uint64_t)options->cases * SAMPLINGS * (1 + LAW_COUNT);
    *count = 0;
    lw_status status = fresh_run(&c);
    lw_way way = LW_WAY_FRESH;
    for (size_t i = 0; i < LAW_COUNT && status == LW_OK; i++) {
        if (laws[i].way == LW_WAY_CUT && !asker->has_cut) continue;
        if (laws[i].way != way) status = asker->turn(asker->context, laws[i].way, d);
        way = laws[i].way;
        if (status == LW_OK) status = law_run(&c, &laws[i], &receipts[(*count)++]);
    }
    return status;
}

bool lw_receipt_holds(const lw_receipt *receipt)
{
    for (size_t i = 0; i < SAMPLINGS; i++) {
        if (receipt->asked[i] == 0 || receipt->equal[i] != receipt->asked[i]) return false;
    }
    return receipt->control_caught;
}

bool lw_receipt_is_shown(const lw_receipt *receipt)
{
    return receipt->evidence_name == NULL || receipt->evidence > 0;
}
