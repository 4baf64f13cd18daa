/* A lane whose tables are filled by hand; see bench_depth.h. */
#include "cli/bench_depth.h"

#include "base/clock.h"
#include "base/rng.h"
#include "lane/pages.h"

#include <stdlib.h>

enum {
    STEPS = 8,                                   /* decode forwards of one measurement */
    MIDDLE = LW_ANCHOR_POSITIONS / 2,            /* past an anchor, so that its steps are read in the mean */
    REAL_POSITIONS = 2 * LW_PAGE_POSITIONS,      /* what is computed, so that an anchor is among it */
};

typedef struct depth_run {
    lw_core_device device;
    uint32_t *tables[LW_PLAN_REACHES_MAX];       /* [page_count] */
    uint32_t page_count, rows_max;
    lw_row *rows;                                /* [rows_max] */
    lw_rng rng;
} depth_run;

uint32_t lw_bench_depth_positions(uint32_t depth, uint32_t chunk_rows)
{
    return depth + MIDDLE + (chunk_rows > LW_PAGE_POSITIONS ? chunk_rows : LW_PAGE_POSITIONS);
}

/* One forward of a chain of random tokens behind `committed` positions. */
static lw_status forward(depth_run *r, uint32_t committed, uint32_t rows, uint64_t *ns, lw_diag *d)
{
    lw_batch_lane lane = { .committed = committed, .page_count = r->page_count };
    for (uint32_t g = 0; g < r->device.pool->group_count; g++) lane.pages[g] = r->tables[g];
    for (uint32_t i = 0; i < rows; i++) {
        r->rows[i] = (lw_row){ .token = (int32_t)lw_rng_below(&r->rng, r->device.plan->vocab),
                               .position = committed + i,
                               .slot = committed + i,
                               .parent = (int32_t)i - 1,
                               .wanted = i + 1 == rows };
    }
    const lw_batch batch = { .rows = r->rows, .row_count = rows, .lanes = &lane, .lane_count = 1 };
    lw_ticket ticket;
    const uint64_t begin = lw_clock_ns();
    lw_status status = r->device.table->submit(r->device.exec, LW_ENTRY_MAIN, &batch, &ticket, d);
    if (status == LW_OK) status = r->device.table->wait(r->device.exec, ticket, d);
    *ns = lw_clock_ns() - begin;
    return status;
}

/* The first page of each kind (of anchors the second, which the rows made) into all others. */
static lw_status pages_fill(depth_run *r, lw_diag *d)
{
    const lw_page_pool *pool = r->device.pool;
    lw_status status = LW_OK;
    for (uint32_t done = 0; done < REAL_POSITIONS && status == LW_OK;) {
        const uint32_t left = REAL_POSITIONS - done, rows = left < r->rows_max ? left : r->rows_max;
        uint64_t ns;
        status = forward(r, done, rows, &ns, d);
        done += rows;
    }
    for (uint32_t g = 0; g < pool->group_count; g++) {
        const uint32_t from = r->tables[g][pool->groups[g].is_anchor ? 1 : 0];
        for (uint32_t page = 0; page < pool->groups[g].count && status == LW_OK; page++)
            if (page != from) status = r->device.table->page_copy(r->device.exec, g, from, page, d);
    }
    return status;
}

static lw_status measure(depth_run *r, uint32_t depth, lw_depth_result *out, lw_diag *d)
{
    uint64_t sum = 0, ns = 0;
    lw_status status = forward(r, depth + MIDDLE, 1, &ns, d); /* what lies idle wakes up */
    for (uint32_t i = 0; i < STEPS && status == LW_OK; i++) {
        status = forward(r, depth + MIDDLE, 1, &ns, d);
        sum += ns;
    }
    out->decode_tok_s = STEPS * 1e9 / (double)sum;
    if (status == LW_OK) status = forward(r, depth, r->rows_max, &ns, d);
    out->prompt_tok_s = r->rows_max * 1e9 / (double)ns;
    return status;
}

/* Groups that look back on a part of the positions have fewer pages than a table: they come round again. */
static lw_status tables_make(depth_run *r, uint32_t positions, lw_diag *d)
{
    const lw_page_pool *pool = r->device.pool;
    r->page_count = lw_pages_of(positions);
    for (uint32_t g = 0; g < pool->group_count; g++) {
        const uint32_t pages = pool->groups[g].count;
        if (pages < 2 || (pool->groups[g].reach == 0 && pages < r->page_count)) {
            return lw_fail(d, LW_NO_ROOM, "%u positions want %u pages, but there are %u; give --context",
                           positions, r->page_count, pages);
        }
        r->tables[g] = calloc(r->page_count, sizeof *r->tables[g]);
        if (r->tables[g] == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %u pages", r->page_count);
        for (uint32_t i = 0; i < r->page_count; i++) r->tables[g][i] = i % pages;
    }
    r->rows = calloc(r->rows_max, sizeof *r->rows);
    return r->rows != NULL ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory for %u rows", r->rows_max);
}

lw_status lw_bench_depth_run(lw_engine *engine, const uint32_t *depths, uint32_t count,
                             lw_depth_result *results, lw_diag *d)
{
    depth_run r = { .rows_max = lw_engine_chunk_rows(engine), .rng = lw_rng_make(count) };
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < count; i++) deepest = depths[i] > deepest ? depths[i] : deepest;
    lw_status status = lw_engine_lend(engine, &r.device, d);
    if (status != LW_OK) return status;
    status = tables_make(&r, lw_bench_depth_positions(deepest, r.rows_max), d);
    if (status == LW_OK) status = pages_fill(&r, d);
    for (uint32_t i = 0; i < count && status == LW_OK; i++) status = measure(&r, depths[i], &results[i], d);
    for (uint32_t g = 0; g < LW_PLAN_REACHES_MAX; g++) free(r.tables[g]);
    free(r.rows);
    lw_engine_return(engine);
    return status;
}
