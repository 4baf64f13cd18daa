/* Prometheus' text form, version 0.0.4; see metrics.h. */
#include "serve/metrics.h"

#include <inttypes.h>
#include <stdio.h>

static const double bounds[] = { 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300 };
_Static_assert(sizeof bounds / sizeof bounds[0] == LW_HISTOGRAM_BOUNDS, "as many as the header says");

static void observe(lw_histogram *histogram, uint64_t ns)
{
    const double seconds = (double)ns / 1e9;
    size_t at = 0;
    while (at < LW_HISTOGRAM_BOUNDS && seconds > bounds[at]) at++;
    histogram->counts[at]++;
    histogram->sum += seconds;
}

void lw_metrics_done(lw_metrics *metrics, const lw_news_end *end, uint64_t taken_ns)
{
    if (end->is_length) metrics->cut++;
    else metrics->stopped++;
    const lw_reply_counts *counts = &end->counts;
    observe(&metrics->whole, taken_ns);
    observe(&metrics->first, counts->queued_ns + counts->prompt_ns);
    observe(&metrics->queued, counts->queued_ns);
    observe(&metrics->prompt, counts->prompt_ns);
    observe(&metrics->decode, counts->decode_ns);
}

void lw_metrics_failed(lw_metrics *metrics)
{
    metrics->failed++;
}

void lw_metrics_gone(lw_metrics *metrics)
{
    metrics->gone++;
}

typedef struct writer {
    lw_buf *out;
    const char *model;
    lw_status status;
} writer;

static void head(writer *w, const char *name, const char *type, const char *help)
{
    if (w->status == LW_OK)
        w->status = lw_buf_printf(w->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(writer *w, const char *name, const char *type, const char *help, double value)
{
    head(w, name, type, help);
    if (w->status == LW_OK)
        w->status = lw_buf_printf(w->out, "%s{model_name=\"%s\"} %.17g\n", name, w->model, value);
}

static void gauge(writer *w, const char *name, const char *help, uint64_t value)
{
    one(w, name, "gauge", help, (double)value);
}

static void counter(writer *w, const char *name, const char *help, uint64_t value)
{
    one(w, name, "counter", help, (double)value);
}

static void histogram(writer *w, const char *name, const char *help, const lw_histogram *h)
{
    uint64_t sum = 0;
    head(w, name, "histogram", help);
    for (size_t i = 0; i <= LW_HISTOGRAM_BOUNDS && w->status == LW_OK; i++) {
        char bound[32] = "+Inf";
        sum += h->counts[i];
        if (i < LW_HISTOGRAM_BOUNDS) snprintf(bound, sizeof bound, "%g", bounds[i]);
        w->status = lw_buf_printf(w->out, "%s_bucket{model_name=\"%s\",le=\"%s\"} %" PRIu64 "\n", name,
                                  w->model, bound, sum);
    }
    if (w->status == LW_OK)
        w->status = lw_buf_printf(
            w->out, "%s_sum{model_name=\"%s\"} %.17g\n%s_count{model_name=\"%s\"} %" PRIu64 "\n", name,
            w->model, h->sum, name, w->model, sum);
}

static void finished(writer *w, const lw_metrics *metrics)
{
    const struct {
        const char *reason;
        uint64_t count;
    } rows[] = { { "stop", metrics->stopped }, { "length", metrics->cut }, { "abort", metrics->gone },
                 { "error", metrics->failed } };
    head(w, "vllm:request_success_total", "counter", "Replies by how they ended.");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && w->status == LW_OK; i++)
        w->status = lw_buf_printf(w->out,
                                  "vllm:request_success_total{model_name=\"%s\",finished_reason=\"%s\"} "
                                  "%" PRIu64 "\n",
                                  w->model, rows[i].reason, rows[i].count);
}

static void write_vllm(writer *w, const lw_metrics *metrics, const lw_model_counts *c)
{
    gauge(w, "vllm:num_requests_running", "Replies that hold a lane.", c->replies_running);
    gauge(w, "vllm:num_requests_waiting", "Requests that wait for a lane.", c->replies_waiting);
    one(w, "vllm:kv_cache_usage_perc", "gauge", "Pages in use; 1 is all of them.",
        c->pages == 0 ? 0 : (double)c->pages_used / (double)c->pages);
    counter(w, "vllm:prompt_tokens_total", "Prompt tokens of all requests.", c->prompt_tokens);
    counter(w, "vllm:generation_tokens_total", "Tokens of all replies.", c->reply_tokens);
    counter(w, "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache.", c->prompt_tokens);
    counter(w, "vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.", c->cached_tokens);
    counter(w, "vllm:spec_decode_num_draft_tokens_total", "Drafts offered.", c->drafts_offered);
    counter(w, "vllm:spec_decode_num_accepted_tokens_total", "Drafts kept.", c->drafts_kept);
    finished(w, metrics);
    histogram(w, "vllm:e2e_request_latency_seconds", "From the request's first byte to the reply's last.",
              &metrics->whole);
    histogram(w, "vllm:time_to_first_token_seconds", "Queue and prompt.", &metrics->first);
    histogram(w, "vllm:request_queue_time_seconds", "In the queue.", &metrics->queued);
    histogram(w, "vllm:request_prefill_time_seconds", "Over the prompt.", &metrics->prompt);
    histogram(w, "vllm:request_decode_time_seconds", "Over the reply.", &metrics->decode);
}

lw_status lw_metrics_write(const lw_metrics *metrics, const lw_metrics_now *now, lw_buf *out)
{
    writer w = { .out = out, .model = now->model };
    const lw_model_counts *c = &now->counts;
    write_vllm(&w, metrics, c);
    gauge(&w, "lanewise_lanes", "Replies that can run at once.", c->lanes);
    counter(&w, "lanewise_rounds_total", "Shared forwards.", c->rounds);
    counter(&w, "lanewise_rounds_ahead_total", "Of those, the ones submitted while the last one ran.",
            c->rounds_ahead);
    counter(&w, "lanewise_rows_total", "Rows of all forwards.", c->rows);
    counter(&w, "lanewise_mtp_drafts_offered_total", "Drafts offered by the model's own head.",
            c->mtp_drafts_offered);
    counter(&w, "lanewise_mtp_drafts_kept_total", "Of those, the ones that were kept.", c->mtp_drafts_kept);
    gauge(&w, "lanewise_pages", "Pages of 64 positions.", c->pages);
    gauge(&w, "lanewise_pages_used", "Pages held by replies and the cache.", c->pages_used);
    gauge(&w, "lanewise_cache_bytes", "Bytes of the prompt cache.", c->cache_bytes);
    gauge(&w, "lanewise_cache_entries", "Entries of the prompt cache.", c->cache_entries);
    counter(&w, "lanewise_cache_hits_total", "Prompts that resumed from the cache.", c->cache_hits);
    counter(&w, "lanewise_cache_misses_total", "Prompts that began anew.", c->cache_misses);
    counter(&w, "lanewise_cache_evicted_total", "Entries that made room.", c->cache_evicted);
    gauge(&w, "lanewise_connections", "Open connections.", now->connections);
    gauge(&w, "lanewise_requests_open", "Requests whose reply is not complete.", now->jobs);
    gauge(&w, "lanewise_body_bytes", "Bytes of bodies that are held.", now->bodies_bytes);
    gauge(&w, "lanewise_resident_bytes", "Resident memory of the process.", now->resident_bytes);
    counter(&w, "lanewise_clients_gone_total", "Requests whose client left before the end.", metrics->gone);
    return w.status;
}
