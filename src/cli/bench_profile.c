/* Timing ops; see bench_profile.h. */
#include "cli/bench_profile.h"

#include <stdio.h>
#include <stdlib.h>

static const lw_entry *entry_of(const lw_profile *profile)
{
    return &profile->plan->entries[LW_ENTRY_MAIN];
}

static uint32_t ops_of(const lw_profile *profile)
{
    return entry_of(profile)->op_end - entry_of(profile)->op_begin;
}

static void on_op(void *context, const lw_op *op, uint64_t ns)
{
    lw_profile *profile = context;
    if (!profile->is_on) return;
    const size_t at = (size_t)(op - profile->plan->ops) - entry_of(profile)->op_begin;
    LW_ASSERT(at < ops_of(profile));
    profile->ns[(size_t)profile->steps * ops_of(profile) + at] = (float)ns;
}

lw_trace lw_profile_trace(lw_profile *profile)
{
    return (lw_trace){ .op = on_op, .context = profile };
}

lw_status lw_profile_make(lw_profile *profile, const lw_plan *plan, uint32_t steps, lw_diag *d)
{
    *profile = (lw_profile){ .plan = plan, .steps_max = steps };
    profile->ns = calloc((size_t)steps * ops_of(profile), sizeof *profile->ns);
    return profile->ns != NULL ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory to profile %u steps", steps);
}

void lw_profile_free(lw_profile *profile)
{
    free(profile->ns);
    *profile = (lw_profile){ .plan = NULL };
}

void lw_profile_step_begin(lw_profile *profile)
{
    profile->is_on = profile->steps < profile->steps_max;
}

void lw_profile_step_end(lw_profile *profile)
{
    profile->steps += profile->is_on;
    profile->is_on = false;
}

/* ---- reading it ---- */

static int compare_floats(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

/* The median of an op over the steps; sorted has room for them. */
static double median_ns(const lw_profile *profile, uint32_t at, float *sorted)
{
    if (profile->steps == 0) return 0.0;
    for (uint32_t i = 0; i < profile->steps; i++) sorted[i] = profile->ns[(size_t)i * ops_of(profile) + at];
    qsort(sorted, profile->steps, sizeof *sorted, compare_floats);
    return (double)sorted[profile->steps / 2];
}

static int compare_lines(const void *a, const void *b)
{
    const double left = ((const lw_profile_line *)a)->ns, right = ((const lw_profile_line *)b)->ns;
    return (left < right) - (left > right);
}

size_t lw_profile_lines(const lw_profile *profile, uint32_t positions, lw_profile_line lines[LW_OP_COUNT + 1])
{
    lw_profile_line kinds[LW_OP_COUNT + 1] = { { .name = NULL } };
    float *sorted = malloc((size_t)profile->steps_max * sizeof *sorted);
    size_t count = 0;
    for (uint32_t at = 0; sorted != NULL && at < ops_of(profile); at++) {
        const lw_op *op = &profile->plan->ops[entry_of(profile)->op_begin + at];
        const bool is_logits = op->out.index == entry_of(profile)->logits.index;
        lw_profile_line *line = &kinds[is_logits ? LW_OP_COUNT : (unsigned)op->kind];
        const lw_read_bytes reads = lw_op_reads(profile->plan, op, positions);
        line->name = is_logits ? "logits" : lw_op_table[op->kind].name;
        line->ops++;
        line->ns += median_ns(profile, at, sorted);
        line->reads.weights += reads.weights;
        line->reads.states += reads.states;
    }
    free(sorted);
    for (size_t i = 0; i <= LW_OP_COUNT; i++)
        if (kinds[i].ops > 0) lines[count++] = kinds[i];
    qsort(lines, count, sizeof *lines, compare_lines);
    return count;
}

double lw_profile_stretch(const lw_profile *profile, const double *scales)
{
    float *sorted = malloc((size_t)profile->steps_max * sizeof *sorted);
    double plain = 0.0, stretched = 0.0;
    for (uint32_t at = 0; sorted != NULL && at < ops_of(profile); at++) {
        const uint32_t index = entry_of(profile)->op_begin + at;
        const double ns = median_ns(profile, at, sorted);
        const bool is_of_layers = lw_op_is_of_layers(profile->plan, index);
        plain += ns;
        stretched += is_of_layers ? ns * scales[profile->plan->ops[index].layer] : ns;
    }
    free(sorted);
    return plain > 0.0 ? stretched / plain : 1.0;
}

static double sum_of(const lw_profile_line *lines, size_t count)
{
    double ns = 0.0;
    for (size_t i = 0; i < count; i++) ns += lines[i].ns;
    return ns;
}

void lw_profile_print(const lw_profile *profile, uint32_t positions, double read_bytes_s)
{
    lw_profile_line lines[LW_OP_COUNT + 1];
    const size_t count = lw_profile_lines(profile, positions, lines);
    const double whole = sum_of(lines, count);
    printf("profile     %10.3f ms in ops of a decode step, medians of %u steps\n", whole / 1e6,
           profile->steps);
    printf("            %-14s %5s %10s %8s %10s %8s %10s\n", "op", "count", "us", "share", "MiB", "GB/s",
           "bandwidth");
    for (size_t i = 0; i < count; i++) {
        const lw_profile_line *line = &lines[i];
        const double bytes = (double)(line->reads.weights + line->reads.states);
        printf("            %-14s %5u %10.1f %6.1f %% %10.2f %8.2f %8.0f %%\n", line->name, line->ops,
               line->ns / 1e3, 100 * line->ns / whole, bytes / (1 << 20), bytes / line->ns,
               100 * bytes / line->ns * 1e9 / read_bytes_s);
    }
}

json_t *lw_profile_json(const lw_profile *profile, uint32_t positions)
{
    lw_profile_line lines[LW_OP_COUNT + 1];
    const size_t count = lw_profile_lines(profile, positions, lines);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const lw_profile_line *line = &lines[i];
        json_t *item = json_pack("{s:s, s:i, s:f, s:I, s:I}", "op", line->name, "count", (int)line->ops, "ns",
                                 line->ns, "weight_bytes", (json_int_t)line->reads.weights, "state_bytes",
                                 (json_int_t)line->reads.states);
        json_array_append_new(list, item);
    }
    return list;
}
