/* Keys, hosts and origins; see access.h. */
#include "serve/access.h"

#include "base/limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- keys ---- */

static lw_status add_key(lw_access *access, const char *text, size_t count, lw_diag *d)
{
    while (count > 0 && (*text == ' ' || *text == '\t')) text++, count--;
    while (count > 0 && strchr(" \t\r", text[count - 1]) != NULL) count--;
    if (count == 0) return LW_OK;
    if (access->key_count == LW_LIMIT_API_KEYS)
        return lw_fail(d, LW_BAD_INPUT, "more than %d API keys", LW_LIMIT_API_KEYS);
    void *keys = realloc(access->keys, (access->key_count + 1) * sizeof *access->keys);
    if (keys == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for API keys");
    access->keys = keys;
    lw_sha256(text, count, access->keys[access->key_count++]);
    return LW_OK;
}

/* Keys between separators; from a file, lines that start with '#' are comments. */
static lw_status add_keys(lw_access *access, const char *text, char separator, lw_diag *d)
{
    while (*text != '\0') {
        const char *end = strchrnul(text, separator);
        const bool is_comment = separator == '\n' && *text == '#';
        const lw_status status = is_comment ? LW_OK : add_key(access, text, (size_t)(end - text), d);
        if (status != LW_OK) return status;
        text = end + (*end != '\0');
    }
    return LW_OK;
}

static lw_status add_key_file(lw_access *access, const char *path, lw_diag *d)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(LW_LIMIT_KEY_FILE_BYTES + 1);
    lw_status status = LW_OK;
    if (file == NULL) status = lw_fail(d, LW_IO, "--api-key-file %s: %s", path, strerror(errno));
    else if (text == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory to read %s", path);
    const size_t before = access->key_count;
    if (status == LW_OK) {
        const size_t count = fread(text, 1, LW_LIMIT_KEY_FILE_BYTES + 1, file);
        if (ferror(file)) status = lw_fail(d, LW_IO, "--api-key-file %s: it cannot be read", path);
        else if (count > LW_LIMIT_KEY_FILE_BYTES)
            status = lw_fail(d, LW_BAD_INPUT, "--api-key-file %s: larger than 1 MiB", path);
        text[count <= LW_LIMIT_KEY_FILE_BYTES ? count : 0] = '\0';
    }
    if (status == LW_OK) status = add_keys(access, text, '\n', d);
    /* An empty file must not open the server to everyone. */
    if (status == LW_OK && access->key_count == before)
        status = lw_fail(d, LW_BAD_INPUT, "--api-key-file %s: no key in it", path);
    if (file != NULL) fclose(file);
    free(text);
    return status;
}

lw_status lw_access_open(lw_access *access, const lw_serve_options *options, bool is_loopback, lw_diag *d)
{
    *access = (lw_access){ .is_loopback = is_loopback,
                           .hosts = &options->allowed_hosts,
                           .origins = &options->origins };
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < options->api_keys.count && status == LW_OK; i++) {
        const char *key = options->api_keys.values[i];
        const size_t before = access->key_count;
        status = add_key(access, key, strlen(key), d);
        if (status == LW_OK && access->key_count == before)
            status = lw_fail(d, LW_BAD_INPUT, "--api-key is empty");
    }
    if (status == LW_OK && options->api_key_file != NULL)
        status = add_key_file(access, options->api_key_file, d);
    if (status == LW_OK && options->api_keys_more != NULL)
        status = add_keys(access, options->api_keys_more, ',', d);
    if (status != LW_OK) lw_access_close(access);
    return status;
}

void lw_access_close(lw_access *access)
{
    free(access->keys);
    access->keys = NULL;
    access->key_count = 0;
}

bool lw_access_key(const lw_access *access, const lw_http_parser *request, lw_failure *failure)
{
    if (access->key_count == 0) return true;
    const char *given = lw_http_find(request, "authorization");
    if (given != NULL) given = strncasecmp(given, "Bearer ", 7) == 0 ? given + 7 : NULL;
    if (given == NULL) given = lw_http_find(request, "x-api-key");
    uint8_t digest[LW_SHA256_BYTES];
    lw_sha256(given != NULL ? given : "", given != NULL ? strlen(given) : 0, digest);
    /* No early end: how long this takes says nothing about which key came close. */
    unsigned found = 0;
    for (size_t i = 0; i < access->key_count; i++) {
        unsigned differs = 0;
        for (size_t k = 0; k < LW_SHA256_BYTES; k++) differs |= (unsigned)(digest[k] ^ access->keys[i][k]);
        found |= differs == 0;
    }
    if (given != NULL && found != 0) return true;
    return lw_failure_set(failure, 401, "invalid_api_key", given == NULL ?
        "an API key is needed: Authorization: Bearer KEY" : "the API key is not known here");
}

/* ---- places ---- */

static bool is_listed(const lw_serve_texts *texts, const char *name, size_t count)
{
    for (uint32_t i = 0; i < texts->count; i++) {
        const char *own = texts->values[i];
        if (strcmp(own, "*") == 0 || (strlen(own) == count && strncasecmp(own, name, count) == 0))
            return true;
    }
    return false;
}

/* The length of the name in "name", "name:port" or "[address]:port"; 0 when it is neither. */
static size_t host_name_bytes(const char *host)
{
    const char *from = *host == '[' ? strchr(host, ']') : host;
    if (from == NULL) return 0;
    const char *colon = strchr(from, ':');
    if (colon != NULL && colon[1 + strspn(colon + 1, "0123456789")] != '\0') return 0;
    return colon == NULL ? strlen(host) : (size_t)(colon - host);
}

static bool is_address(const char *name, size_t count)
{
    char text[64];
    struct in6_addr address;
    const bool has_brackets = count >= 2 && name[0] == '[' && name[count - 1] == ']';
    if (has_brackets) name++, count -= 2;
    if (count == 0 || count >= sizeof text) return false;
    memcpy(text, name, count);
    text[count] = '\0';
    return inet_pton(has_brackets ? AF_INET6 : AF_INET, text, &address) == 1;
}

static bool is_host_allowed(const lw_access *access, const char *host)
{
    const size_t count = host_name_bytes(host);
    if (count == 0) return false;
    const bool is_localhost = count == 9 && strncasecmp(host, "localhost", 9) == 0;
    return is_localhost || is_address(host, count) || is_listed(access->hosts, host, count);
}

/* A page that this server itself sent: its origin is http(s):// and the Host that is asked. */
static bool is_same_origin(const char *origin, const char *host)
{
    const char *rest = strstr(origin, "://");
    return rest != NULL && host != NULL && strncmp(origin, "http", 4) == 0 && strcasecmp(rest + 3, host) == 0;
}

bool lw_access_place(const lw_access *access, const lw_http_parser *request, const char **origin,
                     lw_failure *failure)
{
    const char *host = lw_http_find(request, "host");
    *origin = NULL;
    if (access->is_loopback && host != NULL && !is_host_allowed(access, host))
        return lw_failure_set(failure, 403, "host_not_allowed",
                              "this server listens on loopback and does not know itself as \"%.100s\"; "
                              "--allow-host NAME adds a name", host);
    const char *from = lw_http_find(request, "origin");
    if (from == NULL || is_same_origin(from, host)) return true;
    if (!is_listed(access->origins, from, strlen(from)))
        return lw_failure_set(failure, 403, "origin_not_allowed",
                              "pages of \"%.100s\" may not call this server; --cors ORIGIN allows it", from);
    *origin = from;
    return true;
}
