/* Jobs and news; see job.h. */
#include "serve/job.h"

#include <stdlib.h>
#include <string.h>

typedef struct news_head {
    uint32_t kind;
    uint32_t bytes;
} news_head;

lw_job *lw_job_make(lw_request_kind kind)
{
    lw_job *job = calloc(1, sizeof *job);
    if (job == NULL) return NULL;
    job->kind = kind;
    atomic_init(&job->holders, 1);
    atomic_init(&job->is_cancelled, false);
    atomic_init(&job->is_starved, false);
    lw_buf_init(&job->body, 0);
    lw_buf_init(&job->news, 0);
    return job;
}

void lw_job_release(lw_job *job)
{
    if (atomic_fetch_sub(&job->holders, 1) != 1) return;
    LW_ASSERT(job->reply == NULL && job->answer == NULL);
    lw_buf_deinit(&job->body);
    lw_buf_deinit(&job->news);
    lw_request_deinit(&job->request);
    if (job->prompt != NULL) lw_prompt_free(job->prompt);
    free(job);
}

lw_status lw_news_put(lw_buf *buf, lw_news_kind kind, const void *bytes, size_t count)
{
    const news_head head = { .kind = (uint32_t)kind, .bytes = (uint32_t)count };
    const lw_status status = lw_buf_reserve(buf, sizeof head + count);
    if (status != LW_OK) return status;
    const lw_status first = lw_buf_append(buf, &head, sizeof head);
    return first != LW_OK ? first : lw_buf_append(buf, bytes, count);
}

bool lw_news_next(const lw_buf *buf, size_t *at, lw_news *news)
{
    news_head head;
    if (*at == buf->count) return false;
    memcpy(&head, buf->bytes + *at, sizeof head);
    *news = (lw_news){ .kind = (lw_news_kind)head.kind,
                       .bytes = buf->bytes + *at + sizeof head,
                       .count = head.bytes };
    *at += sizeof head + head.bytes;
    return true;
}
