/* Sorting the rows' slots by expert and sharing out the matrices; see experts.h. */
#include "device/cpu/experts.h"
#include "device/cpu/linear_weight.h"

#include "base/status.h"

#include <string.h>

/* What a pair of blocks costs with `rows` rows, in sixteenths of what reading it for one row does. */
enum { COST_READ = 10, COST_ROW = 6 };

size_t lw_cpu_expert_prepared_bytes(const lw_cpu_kernels *kernels, uint32_t cols, uint32_t vectors)
{
    return vectors * lw_cpu_prepared_bytes(kernels, cols, 1);
}

static uint32_t member_of(const lw_cpu_expert_args *args, uint32_t row, uint32_t slot)
{
    const uint32_t member = (uint32_t)args->route[row * args->route_stride + slot];
    LW_ASSERT(member < lw_cpu_weight_members(args->linear.weight));
    return member;
}

/* Counts, then places: afterwards the vectors of member m are [ends[m - 1], ends[m]). */
static void sort_vectors(const lw_cpu_expert_args *args)
{
    lw_cpu_expert_tables *const t = args->tables;
    const uint32_t members = lw_cpu_weight_members(args->linear.weight), rows = args->linear.rows;
    LW_ASSERT(members <= t->members_max);
    LW_ASSERT((uint64_t)rows * args->top <= t->vectors_max);
    memset(t->ends, 0, (members + 1) * sizeof *t->ends);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t slot = 0; slot < args->top; slot++) t->ends[member_of(args, row, slot) + 1]++;
    for (uint32_t m = 1; m < members; m++) t->ends[m] += t->ends[m - 1];
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t slot = 0; slot < args->top; slot++) {
            const uint32_t at = t->ends[member_of(args, row, slot)]++;
            t->y_rows[at] = row * args->top + slot;
            t->x_rows[at] = args->x_per_slot ? t->y_rows[at] : row;
        }
    }
}

/* A vector that goes alone through several matrices is prepared once for all of them. */
static uint8_t *place_prepared(const lw_cpu_expert_args *args, lw_cpu_expert_load *load, uint8_t *free_at)
{
    uint8_t **const shared = &args->tables->of_row[args->tables->x_rows[load->first]];
    load->owns_prepared = load->count > 1 || *shared == NULL;
    load->prepared = load->owns_prepared ? free_at : *shared;
    if (load->count == 1) *shared = load->prepared;
    if (!load->owns_prepared) return free_at;
    return free_at
        + lw_cpu_prepared_bytes(args->kernels, lw_cpu_weight_cols(args->linear.weight), load->count);
}

void lw_cpu_experts_sort(const lw_cpu_expert_args *args)
{
    lw_cpu_expert_tables *const t = args->tables;
    const uint32_t members = lw_cpu_weight_members(args->linear.weight);
    const uint32_t vectors = args->linear.rows * (args->x_per_slot ? args->top : 1);
    uint8_t *free_at = args->linear.prepared;
    sort_vectors(args);
    memset(t->of_row, 0, vectors * sizeof(*t->of_row));
    t->load_count = 0;
    for (uint32_t m = 0; m < members; m++) {
        const uint32_t first = m == 0 ? 0 : t->ends[m - 1];
        if (first == t->ends[m]) continue;
        lw_cpu_expert_load *const load = &t->loads[t->load_count++];
        *load = (lw_cpu_expert_load){ .member = m, .first = first, .count = t->ends[m] - first };
        free_at = place_prepared(args, load, free_at);
    }
}

static lw_cpu_linear_args linear_of(const lw_cpu_expert_args *args, const lw_cpu_expert_load *load)
{
    lw_cpu_linear_args linear = args->linear;
    linear.member = load->member;
    linear.rows = load->count;
    linear.x_rows = args->tables->x_rows + load->first;
    linear.y_rows = args->tables->y_rows + load->first;
    linear.prepared = load->prepared;
    return linear;
}

void lw_cpu_experts_prepare(const lw_cpu_expert_args *args, unsigned part, unsigned parts)
{
    const lw_cpu_expert_tables *const t = args->tables;
    for (uint32_t i = 0; i < t->load_count; i++) {
        if (!t->loads[i].owns_prepared) continue;
        const lw_cpu_linear_args linear = linear_of(args, &t->loads[i]);
        /* Turned by the load, so that no part always gets the larger share. */
        args->kernels->linear_prepare(&linear, (part + i) % parts, parts);
    }
}

/* Of units that each cost `cost` and begin at `at`, how many begin before target. */
static uint32_t units_before(uint64_t target, uint64_t at, uint64_t cost, uint32_t units)
{
    if (target <= at) return 0;
    const uint64_t count = (target - at + cost - 1) / cost;
    return count < units ? (uint32_t)count : units;
}

/* Parts are cut at equal costs: with few rows that is at equal bytes, and may be inside a matrix. */
void lw_cpu_experts_run(const lw_cpu_expert_args *args, unsigned part, unsigned parts)
{
    const lw_cpu_expert_tables *const t = args->tables;
    const uint32_t units = args->linear.weight->block_count / LW__BLOCKS_UNIT;
    uint64_t total = 0, at = 0;
    for (uint32_t i = 0; i < t->load_count; i++)
        total += units * (COST_READ + (uint64_t)COST_ROW * t->loads[i].count);
    const uint64_t from = total * part / parts, to = total * (part + 1) / parts;
    for (uint32_t i = 0; i < t->load_count; i++) {
        const uint64_t cost = COST_READ + (uint64_t)COST_ROW * t->loads[i].count;
        const uint32_t begin = units_before(from, at, cost, units), end = units_before(to, at, cost, units);
        at += units * cost;
        if (begin == end) continue;
        const lw_cpu_linear_args linear = linear_of(args, &t->loads[i]);
        args->kernels->linear_blocks(&linear, begin * LW__BLOCKS_UNIT, end * LW__BLOCKS_UNIT);
    }
}
