/* Costs, luck and the guard; see depth.h. */
#include "lane/depth.h"

#include <math.h>
#include <stdlib.h>

#define COST_RATE 0.2
#define COST_RISE_MAX 2.0 /* a round that was interrupted says little */
#define CHANCE_RATE 0.15f
#define FORGET_RATE 0.015625f
#define LEARN_RATE 0.5f
#define ACCOUNT_MAX 4.0f           /* what luck of old may lose when it turns */
#define ROUND_NS_ASSUMED 1e6   /* only ratios of unmeasured costs matter */
#define ROW_SHARE_ASSUMED 0.0625

enum { UNTRIED_MAX = 128 };

static double assumed(uint32_t rows)
{
    return ROUND_NS_ASSUMED * (1.0 + ROW_SHARE_ASSUMED * (rows - 1));
}

static double between(const lw_cost *a, const lw_cost *b, uint32_t rows)
{
    return a->ns + (b->ns - a->ns) * (double)(rows - a->rows) / (double)(b->rows - a->rows);
}

lw_status lw_costs_init(lw_costs *costs, const lw_cost *given, uint32_t given_count, uint32_t rows_max,
                        lw_diag *d)
{
    *costs = (lw_costs){ .rows_max = rows_max, .has_unit = given_count > 0 };
    costs->ns = calloc((size_t)rows_max + 1, sizeof *costs->ns);
    costs->is_assumed = calloc((size_t)rows_max + 1, sizeof *costs->is_assumed);
    if (costs->ns == NULL || costs->is_assumed == NULL) {
        lw_costs_deinit(costs);
        return lw_fail(d, LW_NO_ROOM, "no memory for the costs of %u rows", rows_max);
    }
    uint32_t next = 0;
    for (uint32_t rows = 1; rows <= rows_max; rows++) {
        while (next < given_count && given[next].rows <= rows) next++;
        costs->is_assumed[rows] = given_count == 0;
        if (given_count == 0) {
            costs->ns[rows] = assumed(rows);
        } else if (next == 0) {
            costs->ns[rows] = given[0].ns;
        } else if (next == given_count) {
            costs->ns[rows] = given[next - 1].ns * rows / given[next - 1].rows;
        } else {
            costs->ns[rows] = between(&given[next - 1], &given[next], rows);
        }
    }
    return LW_OK;
}

void lw_costs_deinit(lw_costs *costs)
{
    free(costs->ns);
    free(costs->is_assumed);
    *costs = (lw_costs){ 0 };
}

double lw_costs_at(const lw_costs *costs, uint32_t rows)
{
    LW_ASSERT(rows <= costs->rows_max);
    return costs->ns[rows == 0 ? 1 : rows];
}

void lw_costs_measure(lw_costs *costs, uint32_t rows, double ns)
{
    LW_ASSERT(rows > 0 && rows <= costs->rows_max);
    if (!(ns > 0.0)) return;
    const double unit = ns / costs->ns[rows];
    for (uint32_t i = 1; i <= costs->rows_max && !costs->has_unit; i++) costs->ns[i] *= unit;
    costs->has_unit = true;
    const bool is_assumed = costs->is_assumed[rows];
    if (!is_assumed && ns > COST_RISE_MAX * costs->ns[rows]) ns = COST_RISE_MAX * costs->ns[rows];
    costs->ns[rows] += (is_assumed ? 1.0 : COST_RATE) * (ns - costs->ns[rows]);
    costs->is_assumed[rows] = false;
    for (uint32_t i = 1; i < rows; i++) {
        if (costs->ns[i] > costs->ns[rows]) costs->ns[i] = costs->ns[rows];
    }
}

void lw_depth_init(lw_depth *depth, float chance)
{
    *depth = (lw_depth){ .first = chance, .account = LW_DEPTH_GRANT };
    for (uint32_t i = 0; i < LW_DRAFTS_MAX; i++) depth->chances[i] = chance;
}

void lw_depth_learn(lw_depth *luck, const lw_depth *ended)
{
    for (uint32_t i = 0; i < LW_DRAFTS_MAX; i++)
        luck->chances[i] += LEARN_RATE * (ended->chances[i] - luck->chances[i]);
    luck->account = fminf(ended->account, LW_DEPTH_GRANT);
    luck->untried = ended->untried;
}

/* What a round takes with so many drafts, by one without them. */
static double round_share(const lw_draft_prices *prices, uint32_t drafts)
{
    const double plain = lw_costs_at(prices->rounds, prices->rows);
    const double round = lw_costs_at(prices->rounds, prices->rows + drafts) + drafts * prices->step_ns;
    return round > plain ? round / plain : 1.0;
}

static uint32_t drafts_fit(const lw_draft_prices *prices, uint32_t most)
{
    const uint32_t spare = prices->rounds->rows_max - prices->rows;
    return most < spare ? most : spare;
}

uint32_t lw_depth_limit(const lw_depth *depth, const lw_draft_prices *prices, uint32_t most)
{
    for (uint32_t drafts = drafts_fit(prices, most); drafts > 0; drafts--) {
        const double stake = prices->streams * (round_share(prices, drafts) - 1.0);
        if (stake <= (double)depth->account && stake < drafts) return drafts;
    }
    return 0;
}

double lw_depth_gain(const lw_depth *depth, const lw_draft_prices *prices, uint32_t most)
{
    const uint32_t fit = drafts_fit(prices, most < LW_DRAFTS_MAX ? most : LW_DRAFTS_MAX);
    double best = 1.0, expected = prices->streams, chance = 1.0;
    for (uint32_t i = 0; i < fit; i++) {
        chance *= (double)depth->chances[i];
        expected += chance;
        const double gain = expected / (prices->streams * round_share(prices, i + 1));
        if (gain > best) best = gain;
    }
    return best;
}

bool lw_depth_is_due(const lw_depth *depth)
{
    return depth->untried >= UNTRIED_MAX;
}

/* Old luck is forgotten slowly: a depth that is never tried again could not show that it has become better.
 */
static void forget(lw_depth *depth, uint32_t begin)
{
    for (uint32_t j = begin; j < LW_DRAFTS_MAX; j++)
        depth->chances[j] += FORGET_RATE * (depth->first - depth->chances[j]);
}

static void earn(lw_depth *depth, uint32_t tokens)
{
    if (depth->account >= LW_DEPTH_GRANT) return;
    depth->account = fminf(depth->account + (float)tokens * LW_DEPTH_INCOME, LW_DEPTH_GRANT);
}

void lw_depth_plain(lw_depth *depth)
{
    if (depth->untried < UNTRIED_MAX) depth->untried++;
    earn(depth, 1);
    forget(depth, 0);
}

void lw_depth_drafted(lw_depth *depth, uint32_t offered, uint32_t kept, double extra, uint32_t streams)
{
    LW_ASSERT(kept <= offered && offered <= LW_DRAFTS_MAX);
    for (uint32_t j = 0; j < offered && j <= kept; j++) {
        depth->chances[j] += CHANCE_RATE * ((j < kept ? 1.0f : 0.0f) - depth->chances[j]);
    }
    forget(depth, kept < offered ? kept + 1 : offered);
    depth->untried = 0;
    earn(depth, 1 + kept);
    const float won = (float)(kept - streams * extra);
    depth->account = fmaxf(-LW_DEPTH_GRANT, fminf(depth->account + won, ACCOUNT_MAX));
}
