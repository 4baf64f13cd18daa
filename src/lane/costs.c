/* Timing rounds, and the file that keeps the times; see costs.h. */
#include "lane/costs.h"

#include "base/kept.h"
#include "base/clock.h"
#include "base/sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPEATS = 3,                  /* the least of so many counts: noise only adds */
    REPEATS_MAX = 15,             /* of short rounds, which an interruption multiplies */
    REPEATS_NS = 50000000,        /* until they took so long together */
    ROUND_NS_MAX = 250000000,     /* a class after one that took longer is left out */
    WINDOW_ROWS = 16,             /* up to here rows stand for drafts, whose logits are wanted */
    FILE_BYTES_MAX = 4096,
    PROGRAM_BYTES_MAX = 1 << 28,
};

static const char file_head[] = "lanewise window costs 2\n", step_word[] = "step ";

/* ---- timing ---- */

static void rows_fill(lw_row *rows, uint32_t count, uint32_t wanted_max)
{
    for (uint32_t i = 0; i < count; i++) {
        const bool is_window = count <= WINDOW_ROWS && count <= wanted_max;
        rows[i] = (lw_row){ .token = 0, .position = i, .slot = i, .parent = (int32_t)i - 1,
                            .wanted = is_window || i + 1 == count };
    }
}

/* Of the batch as a round, or of the chain where there is one. */
static lw_status round_time(const lw_core_device *device, const lw_batch *batch, const lw_chain *chain,
                            double *ns, lw_diag *d)
{
    double total_ns = 0;
    *ns = 0;
    for (int i = 0; i < REPEATS || (i < REPEATS_MAX && total_ns < REPEATS_NS); i++) {
        lw_ticket ticket = 0;
        const uint64_t begin = lw_clock_ns();
        lw_status status = chain != NULL
            ? device->table->submit_chain(device->exec, chain, &ticket, d)
            : device->table->submit(device->exec, LW_ENTRY_MAIN, batch, &ticket, d);
        if (status == LW_OK) status = device->table->wait(device->exec, ticket, d);
        if (status != LW_OK) return status;
        const double took = (double)(lw_clock_ns() - begin);
        if (i == 0 || took < *ns) *ns = took;
        total_ns += took;
        if (took > ROUND_NS_MAX) break;
    }
    return LW_OK;
}

static lw_batch_lane lane_make(const lw_core_device *device, const lw_page_table *table, uint32_t committed)
{
    lw_batch_lane lane = { .committed = committed, .page_count = device->pool->table_pages };
    for (uint32_t g = 0; g < device->pool->group_count; g++) lane.pages[g] = table->ids[g];
    return lane;
}

static lw_status classes_time(const lw_core_device *device, const lw_page_table *table, lw_row *rows,
                              uint32_t rows_max, uint32_t wanted_max, lw_cost_list *out)
{
    for (uint32_t count = 1; count <= rows_max && out->count < LW_COST_CLASSES_MAX; count *= 2) {
        rows_fill(rows, count, wanted_max);
        const lw_batch_lane lane = lane_make(device, table, 0);
        const lw_batch batch = { .rows = rows, .row_count = count, .lanes = &lane, .lane_count = 1 };
        double ns;
        const lw_status status = round_time(device, &batch, NULL, &ns, NULL);
        if (status != LW_OK) return status;
        out->items[out->count++] = (lw_cost){ .rows = count, .ns = ns };
        if (ns > ROUND_NS_MAX) break;
    }
    return LW_OK;
}

/* One table does for all chains, since each begins at a position of its own. None begins at 0: no chain ever
 * does. */
static lw_status steps_time(const lw_core_device *device, const lw_page_table *table, uint32_t chains,
                            lw_cost_list *out)
{
    lw_row rows[WINDOW_ROWS];
    lw_batch_lane lanes[WINDOW_ROWS];
    uint32_t steps[WINDOW_ROWS];
    for (uint32_t i = 0; i < chains; i++) {
        lanes[i] = lane_make(device, table, i + 1);
        rows[i] = (lw_row){ .lane = i, .position = i + 1, .slot = i + 1, .parent = -1, .wanted = true };
        steps[i] = 1;
    }
    for (uint32_t count = 1; count <= chains && out->count < LW_COST_CLASSES_MAX; count *= 2) {
        const lw_chain chain = { .rows = rows, .steps = steps, .row_count = count, .lanes = lanes,
                                 .lane_count = chains };
        double ns;
        const lw_status status = round_time(device, NULL, &chain, &ns, NULL);
        if (status != LW_OK) return status;
        out->items[out->count++] = (lw_cost){ .rows = count, .ns = ns };
    }
    return LW_OK;
}

/* What more rows were seen to do in less time, fewer do too. */
static void list_settle(lw_cost_list *list)
{
    for (uint32_t i = list->count; i-- > 1;) {
        if (list->items[i - 1].ns > list->items[i].ns) list->items[i - 1].ns = list->items[i].ns;
    }
}

lw_status lw_costs_time(const lw_core_device *device, uint32_t rows_max, uint32_t wanted_max, lw_timings *out,
                        lw_diag *d)
{
    const bool has_head = device->plan->entry_count > LW_ENTRY_HEAD;
    const uint32_t fit = wanted_max < rows_max ? wanted_max : rows_max - 1;
    const uint32_t chains = fit < WINDOW_ROWS ? fit : WINDOW_ROWS;
    *out = (lw_timings){ .rounds = { .count = 0 } };
    lw_row *rows = calloc(rows_max, sizeof *rows);
    lw_page_table table;
    if (rows == NULL) return lw_fail(d, LW_NO_ROOM, "no memory to time %u rows", rows_max);
    lw_status status = lw_page_table_init(&table, device->pool, d);
    if (status == LW_OK) {
        status = lw_pages_cover(device->pool, &table, rows_max, d);
        if (status == LW_OK) status = classes_time(device, &table, rows, rows_max, wanted_max, &out->rounds);
        if (status == LW_OK && has_head) status = steps_time(device, &table, chains, &out->steps);
        lw_pages_clear(device->pool, &table);
        lw_page_table_deinit(&table);
    }
    free(rows);
    if (status != LW_OK) return lw_fail_prefix(d, status, "timing the rounds");
    list_settle(&out->rounds);
    list_settle(&out->steps);
    return LW_OK;
}

/* ---- the key ---- */

/* Appends the digest of this program's file; nothing where it cannot be read. */
static void program_add(lw_buf *text)
{
    FILE *file = fopen("/proc/self/exe", "rbe");
    if (file == NULL) return;
    lw_buf bytes;
    uint8_t digest[LW_SHA256_BYTES], block[65536];
    size_t got;
    lw_status status = LW_OK;
    lw_buf_init(&bytes, PROGRAM_BYTES_MAX);
    while (status == LW_OK && (got = fread(block, 1, sizeof block, file)) > 0)
        status = lw_buf_append(&bytes, block, got);
    lw_sha256(bytes.bytes, bytes.count, digest);
    if (status == LW_OK) status = lw_buf_append(text, digest, sizeof digest);
    lw_buf_deinit(&bytes);
    fclose(file);
}

void lw_costs_key(const char *device, const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max,
                  char key[LW_COSTS_KEY_CHARS + 1])
{
    lw_buf text;
    uint8_t digest[LW_SHA256_BYTES];
    lw_buf_init(&text, 0);
    program_add(&text);
    const uint32_t wanted = wanted_max < WINDOW_ROWS ? wanted_max : WINDOW_ROWS;
    lw_status status = lw_buf_printf(&text, "|%s|%s|%u|%u|%u|%u|", LW_VERSION, device, plan->vocab,
                                     plan->op_count, rows_max, wanted);
    for (uint32_t i = 0; i < plan->weight_count && status == LW_OK; i++) {
        char format[32];
        lw_weight_format(&plan->weights[i], format);
        status = lw_buf_printf(&text, "%s %" PRIu64 "%s,", format, lw_weight_bytes(&plan->weights[i]),
                               plan->weights[i].x_int8 ? " int8" : "");
    }
    for (uint32_t i = 0; i < plan->state_count && status == LW_OK; i++)
        status = lw_buf_printf(&text, "%" PRIu64 ",", lw_state_page_bytes(&plan->states[i]));
    lw_sha256(text.bytes, text.count, digest);
    lw_buf_deinit(&text);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(key + 2 * i, 3, "%02x", digest[i]);
}

/* ---- the file ---- */

/* "ROWS NS\n" with ROWS above those of the line before and NS above 0. */
static bool line_parse(const char **at, lw_cost_list *out)
{
    char *end;
    if (out->count == LW_COST_CLASSES_MAX) return false;
    const uint32_t rows_least = out->count == 0 ? 1 : out->items[out->count - 1].rows + 1;
    const unsigned long rows = strtoul(*at, &end, 10);
    if (end == *at || *end != ' ' || rows < rows_least || rows > LW_LIMIT_CONTEXT) return false;
    const char *ns_at = end + 1;
    const double ns = strtod(ns_at, &end);
    if (end == ns_at || *end != '\n' || !(ns > 0 && ns < 1e15)) return false;
    out->items[out->count++] = (lw_cost){ .rows = (uint32_t)rows, .ns = ns };
    *at = end + 1;
    return true;
}

/* bytes NULL: an empty file. */
static bool file_parse(const char *bytes, lw_timings *out)
{
    const size_t head = strlen(file_head);
    if (bytes == NULL || strncmp(bytes, file_head, head) != 0) return false;
    for (const char *at = bytes + head; *at != '\0';) {
        const bool is_step = strncmp(at, step_word, strlen(step_word)) == 0;
        if (is_step) at += strlen(step_word);
        if (!line_parse(&at, is_step ? &out->steps : &out->rounds)) return false;
    }
    return out->rounds.count > 0;
}

lw_status lw_costs_read(const char *dir, const char *key, lw_timings *out, lw_diag *d)
{
    lw_buf text;
    *out = (lw_timings){ .rounds = { .count = 0 } };
    lw_buf_init(&text, FILE_BYTES_MAX);
    lw_status status = lw_kept_read(dir, key, &text, d);
    if (status == LW_OK && !file_parse(text.bytes, out)) {
        *out = (lw_timings){ .rounds = { .count = 0 } };
        status = lw_fail(d, LW_BAD_INPUT, "%s/%s: not a file of window costs", dir, key);
    }
    lw_buf_deinit(&text);
    return status;
}

static lw_status list_add(lw_buf *text, const char *word, const lw_cost_list *list)
{
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < list->count && status == LW_OK; i++) {
        const lw_cost *cost = &list->items[i];
        status = lw_buf_printf(text, "%s%u %.0f\n", word, cost->rows, cost->ns < 1 ? 1 : cost->ns);
    }
    return status;
}

lw_status lw_costs_save(const char *dir, const char *key, const lw_timings *timings, lw_diag *d)
{
    lw_buf text;
    lw_buf_init(&text, FILE_BYTES_MAX);
    lw_status status = lw_buf_append_text(&text, file_head);
    if (status == LW_OK) status = list_add(&text, "", &timings->rounds);
    if (status == LW_OK) status = list_add(&text, step_word, &timings->steps);
    if (status != LW_OK) lw_fail(d, status, "%s/%s: no memory", dir, key);
    else status = lw_kept_save(dir, key, text.bytes, text.count, d);
    lw_buf_deinit(&text);
    return status;
}
