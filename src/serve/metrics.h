/* Numbers for GET /metrics in Prometheus' text form: vLLM's names where they mean the same, ours beside them.
 * Owned by the event thread.
 */
#ifndef LW_SERVE_METRICS_H
#define LW_SERVE_METRICS_H

#include "serve/job.h"

enum { LW_HISTOGRAM_BOUNDS = 14 };

typedef struct lw_histogram {
    uint64_t counts[LW_HISTOGRAM_BOUNDS + 1]; /* not cumulative; the last one is above all bounds */
    double sum;
} lw_histogram;

typedef struct lw_metrics {
    uint64_t stopped, cut, failed, gone; /* replies by how they ended */
    lw_histogram whole, first, queued, prompt, decode;
} lw_metrics;

void lw_metrics_done(lw_metrics *metrics, const lw_news_end *end, uint64_t taken_ns);
void lw_metrics_failed(lw_metrics *metrics);
void lw_metrics_gone(lw_metrics *metrics);

/* What /metrics says besides. */
typedef struct lw_metrics_now {
    const char *model;
    lw_model_counts counts;
    uint32_t connections, jobs;
    uint64_t bodies_bytes, resident_bytes;
} lw_metrics_now;

lw_status lw_metrics_write(const lw_metrics *metrics, const lw_metrics_now *now, lw_buf *out) LW_MUST_USE;

#endif
