/* Asking a running server: all requests are sent before the first answer is read, so they are there at once.
 */
#include "cli/receipts_url.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static json_t *conversation(const lw_ask *ask)
{
    const char *text = lw_receipt_cases[ask->item];
    return lw_json_load(text, strlen(text), 0, NULL);
}

/* The conversation's ids as the server counts them. A new reference. */
static lw_status ids_ask(const lw_receipt_url *u, const lw_ask *ask, json_t **ids, lw_diag *d)
{
    lw_http_call call;
    json_t *answer = NULL, *body = json_pack("{s:o}", "messages", conversation(ask));
    *ids = NULL;
    lw_status status = lw_http_send(&u->server, "/tokenize", body, &call, d);
    json_decref(body);
    if (status != LW_OK) return status;
    status = lw_http_json(&call, &answer, d);
    lw_http_close(&call);
    json_t *list = json_object_get(answer, "tokens");
    if (status == LW_OK && json_array_size(list) == 0)
        status = lw_fail(d, LW_BAD_INPUT, "the server's /tokenize names no tokens");
    if (status == LW_OK) *ids = json_incref(list);
    json_decref(answer);
    return status;
}

/* Another last token: every vocabulary has the first few hundred ids. */
static void ids_alter(json_t *ids, uint32_t altered)
{
    const size_t last = json_array_size(ids) - 1;
    const json_int_t own = json_integer_value(json_array_get(ids, last));
    const json_int_t other = (own + 29 * (json_int_t)altered) % 256;
    json_array_set_new(ids, last, json_integer(other == own ? 256 : other));
}

static lw_status ask_send(const lw_receipt_url *u, const lw_ask *ask, lw_http_call *call, lw_diag *d)
{
    json_t *body = json_pack("{s:f, s:i, s:i, s:b, s:b}", "temperature", ask->is_sampled ? 0.8 : 0.0, "seed",
                             (int)(1000 + ask->item), "max_tokens", (int)u->tokens, "ignore_eos", 1, "draft",
                             ask->drafts);
    json_t *ids = NULL;
    lw_status status = ask->by_ids ? ids_ask(u, ask, &ids, d) : LW_OK;
    if (status == LW_OK) {
        if (ask->altered != 0) ids_alter(ids, ask->altered);
        if (ask->by_ids) json_object_set(body, "prompt", ids);
        else json_object_set_new(body, "messages", conversation(ask));
        status =
            lw_http_send(&u->server, ask->by_ids ? "/v1/completions" : "/v1/chat/completions", body, call, d);
    }
    json_decref(ids);
    json_decref(body);
    return status;
}

static lw_status answer_read(lw_http_call *call, lw_answer *answer, lw_diag *d)
{
    json_t *root = NULL;
    lw_status status = lw_http_json(call, &root, d);
    if (status != LW_OK) return status;
    const json_t *extras = json_object_get(root, "lanewise");
    const char *sha = json_string_value(json_object_get(extras, "token_sha"));
    *answer = (lw_answer){
        .tokens = (uint32_t)json_integer_value(
            json_object_get(json_object_get(root, "usage"), "completion_tokens")),
        .cached_tokens = (uint32_t)json_integer_value(json_object_get(extras, "cached_tokens")),
        .drafts_kept =
            (uint32_t)json_integer_value(json_object_get(json_object_get(extras, "drafts"), "kept")),
    };
    if (sha == NULL || strlen(sha) != LW_TOKEN_SHA_CHARS)
        status =
            lw_fail(d, LW_UNSUPPORTED, "the server's replies carry no token_sha: it is not lanewise serve");
    else memcpy(answer->sha, sha, LW_TOKEN_SHA_CHARS + 1);
    json_decref(root);
    return status;
}

static lw_status url_ask(void *context, const lw_ask *asks, size_t count, lw_answer *answers, lw_diag *d)
{
    const lw_receipt_url *u = context;
    lw_http_call calls[LW_RECEIPT_TOGETHER_MAX];
    lw_status status = LW_OK;
    size_t sent = 0;
    LW_ASSERT(count <= LW_RECEIPT_TOGETHER_MAX);
    for (; sent < count && status == LW_OK; sent += status == LW_OK)
        status = ask_send(u, &asks[sent], &calls[sent], d);
    for (size_t i = 0; i < sent; i++) {
        if (status == LW_OK) status = answer_read(&calls[i], &answers[i], d);
        lw_http_close(&calls[i]);
    }
    return status;
}

static lw_status url_turn(void *context, lw_way way, lw_diag *d)
{
    (void)context;
    (void)way;
    (void)d;
    return LW_OK;
}

lw_asker lw_receipt_url_asker(lw_receipt_url *url)
{
    return (lw_asker){ .context = url, .has_cut = false, .turn = url_turn, .ask = url_ask };
}
