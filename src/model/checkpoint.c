/* A model folder as one set of tensors; see checkpoint.h. Which files count:
 *   1. With model.safetensors.index.json: exactly the shards that it names, and every tensor that it names
 *      must be in its shard.
 *   2. Else, with model.safetensors: that file.
 *   3. Else every *.safetensors except ref64.safetensors, adapter* and side files.
 *   Unfinished downloads beside them are an error: some tools write holes into the file itself.
 *   4. In each case side files too: mtp*.safetensors and model_extra_tensors.safetensors carry draft heads
 *      that converters leave out. A tensor of mtp*.safetensors whose name does not begin with "mtp." gets
 *      that in front.
 * A tensor that stands in two files is an error: there is no telling which one is meant.
 */
#include "model/checkpoint.h"

#include "base/arena.h"
#include "base/size.h"
#include "model/file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char index_name[] = "model.safetensors.index.json";
static const char whole_name[] = "model.safetensors";
static const char extra_name[] = "model_extra_tensors.safetensors";
static const char quant_name[] = "hf_quant_config.json";
static const char side_prefix[] = "mtp.";

enum { FILE_NAME_BYTES_MAX = 255 };

typedef struct shard {
    const char *name;     /* inside the folder */
    lw_safetensors *file; /* owned; NULL until opened */
    bool is_side;         /* names get side_prefix */
} shard;

struct lw_checkpoint {
    lw_arena arena; /* texts, shards, tensors */
    lw_arena *kept; /* the same, for descriptors made of a checkpoint that is read-only otherwise */
    const char *dir;
    lw_config *config;
    lw_config *generation;
    lw_config *quant; /* NULL where config.json tells, or nothing does */
    lw_config *index; /* NULL without an index */
    shard *shards;    /* [LW_LIMIT_SHARDS]: only the head is touched */
    size_t shard_count;
    lw_tensor *tensors; /* [tensor_count], ascending by name */
    size_t tensor_count;
    uint64_t bytes;
};

static bool has_ending(const char *text, const char *ending)
{
    const size_t bytes = strlen(text), ending_bytes = strlen(ending);
    return bytes > ending_bytes && strcmp(text + bytes - ending_bytes, ending) == 0;
}

static bool has_beginning(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static lw_status no_memory(const lw_checkpoint *c, lw_diag *d)
{
    return lw_fail(d, LW_NO_ROOM, "%s: no memory for the list of tensors", c->dir);
}

/* dir/name from the arena; NULL without memory. */
static const char *path_in(lw_checkpoint *c, const char *name)
{
    const size_t dir_bytes = strlen(c->dir), name_bytes = strlen(name);
    char *path = lw_arena_take(&c->arena, dir_bytes + name_bytes + 2);
    if (path == NULL) return NULL;
    memcpy(path, c->dir, dir_bytes);
    path[dir_bytes] = '/';
    memcpy(path + dir_bytes + 1, name, name_bytes);
    return path;
}

/* True if the folder has an entry of that name, a dead link included: opening it then says what is wrong. */
static bool has_entry(const lw_checkpoint *c, const char *name)
{
    struct stat st;
    char path[PATH_MAX];
    const int bytes = snprintf(path, sizeof path, "%s/%s", c->dir, name);
    return bytes >= 0 && (size_t)bytes < sizeof path && lstat(path, &st) == 0;
}

static lw_status check_dir(const lw_checkpoint *c, lw_diag *d)
{
    struct stat st;
    if (stat(c->dir, &st) != 0) {
        if (errno == ENOENT) return lw_fail(d, LW_NOT_FOUND, "%s: there is no such folder", c->dir);
        return lw_fail(d, LW_IO, "%s: %s", c->dir, strerror(errno));
    }
    if (!S_ISDIR(st.st_mode))
        return lw_fail(d, LW_BAD_INPUT,
                       "%s: is a file; give the folder that holds config.json and the weights", c->dir);
    return LW_OK;
}

static lw_status open_configs(lw_checkpoint *c, lw_diag *d)
{
    static const char empty[] = "{}";
    if (!has_entry(c, "config.json"))
        return lw_fail(d, LW_NOT_FOUND,
                       "%s: the folder has no config.json; give a folder in Hugging Face or MLX layout",
                       c->dir);
    const char *path = path_in(c, "config.json");
    const char *generation_path = path_in(c, "generation_config.json");
    const char *quant_path = path_in(c, quant_name);
    if (path == NULL || generation_path == NULL || quant_path == NULL) return no_memory(c, d);
    lw_status status = lw_config_open(path, &c->config, d);
    const bool tells = lw_config_get(c->config, "quantization|quantization_config") != NULL;
    if (status == LW_OK && !tells && has_entry(c, quant_name))
        status = lw_config_open(quant_path, &c->quant, d);
    if (status != LW_OK) return status;
    if (has_entry(c, "generation_config.json")) return lw_config_open(generation_path, &c->generation, d);
    return lw_config_parse(empty, sizeof empty - 1, generation_path, &c->generation, d);
}

static lw_status add_shard(lw_checkpoint *c, const char *name, bool is_side, lw_diag *d)
{
    for (size_t i = 0; i < c->shard_count; i++)
        if (strcmp(c->shards[i].name, name) == 0) return LW_OK;
    if (c->shard_count == LW_LIMIT_SHARDS)
        return lw_fail(d, LW_NO_ROOM, "%s: more than %d weight files", c->dir, LW_LIMIT_SHARDS);
    const char *copy = lw_arena_copy_text(&c->arena, name, strlen(name));
    if (copy == NULL) return no_memory(c, d);
    c->shards[c->shard_count++] = (shard){ .name = copy, .is_side = is_side };
    return LW_OK;
}

/* A shard's name comes from outside and must not lead out of the folder. */
static lw_status check_shard_name(const lw_checkpoint *c, const char *tensor, const char *name, lw_diag *d)
{
    if (name == NULL)
        return lw_fail(d, LW_BAD_MODEL, "%s: weight_map: the shard of tensor \"%s\" is not a string",
                       lw_config_name(c->index), tensor);
    if (*name == '\0' || strlen(name) > FILE_NAME_BYTES_MAX || strchr(name, '/') != NULL ||
        strstr(name, "..") != NULL)
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: weight_map: tensor \"%s\": \"%.*s\" is not the plain name of a file",
                       lw_config_name(c->index), tensor, FILE_NAME_BYTES_MAX, name);
    return LW_OK;
}

static json_t *weight_map(const lw_checkpoint *c)
{
    /* jansson's iteration macros want a mutable object; the map is only read. */
    return (json_t *)(uintptr_t)lw_config_get(c->index, "weight_map");
}

static lw_status list_from_index(lw_checkpoint *c, lw_diag *d)
{
    const char *path = path_in(c, index_name), *tensor;
    json_t *value;
    if (path == NULL) return no_memory(c, d);
    lw_status status = lw_config_open(path, &c->index, d);
    if (status != LW_OK) return status;
    json_t *map = weight_map(c);
    if (!json_is_object(map)) return lw_fail(d, LW_BAD_MODEL, "%s: \"weight_map\" is not an object", path);
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        const size_t count_before = c->shard_count;
        status = check_shard_name(c, tensor, name, d);
        if (status == LW_OK) status = add_shard(c, name, false, d);
        if (status != LW_OK) return status;
        if (c->shard_count > count_before && !has_entry(c, name))
            return lw_fail(d, LW_NOT_FOUND,
                           "%s: shard \"%s\" is not in the folder; tensor \"%s\" should be in it", path, name,
                           tensor);
    }
    return LW_OK;
}

/* Adds the folder's files that rule 3 (is_side false) or rule 4 (is_side true) names. */
static lw_status list_from_folder(lw_checkpoint *c, bool is_side, lw_diag *d)
{
    lw_status status = LW_OK;
    const struct dirent *entry;
    DIR *folder = opendir(c->dir);
    if (folder == NULL) return lw_fail(d, LW_IO, "%s: %s", c->dir, strerror(errno));
    while (status == LW_OK && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (!has_ending(name, ".safetensors") || name[0] == '.') continue;
        const bool is_mtp = has_beginning(name, "mtp"), is_extra = strcmp(name, extra_name) == 0;
        const bool is_other = has_beginning(name, "adapter") || strcmp(name, "ref64.safetensors") == 0;
        if (is_other || (is_mtp || is_extra) != is_side) continue;
        status = add_shard(c, name, is_mtp, d);
    }
    closedir(folder);
    return status;
}

/* What downloaders put behind the name of a file that is not whole. */
static bool is_unfinished(const char *name)
{
    static const char *const endings[] = { ".incomplete", ".part", ".partial", ".aria2", ".crdownload" };
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (has_ending(name, endings[i])) return true;
    return false;
}

/* Refuses a folder with an unfinished download whose name has part in it. */
static lw_status check_finished(const lw_checkpoint *c, const char *part, lw_diag *d)
{
    char found[FILE_NAME_BYTES_MAX + 1] = "";
    const struct dirent *entry;
    DIR *folder = opendir(c->dir);
    if (folder == NULL) return lw_fail(d, LW_IO, "%s: %s", c->dir, strerror(errno));
    while ((entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (!is_unfinished(name) || strstr(name, part) == NULL) continue;
        if (found[0] == '\0' || strcmp(name, found) < 0) snprintf(found, sizeof found, "%s", name);
    }
    closedir(folder);
    if (found[0] == '\0') return LW_OK;
    return lw_fail(d, LW_NOT_FOUND,
                   "%s: half a download: %s is not finished; let it end, or remove that file if it is a "
                   "leftover and the folder is whole without it",
                   c->dir, found);
}

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const shard *)a)->name, ((const shard *)b)->name);
}

static lw_status list_shards(lw_checkpoint *c, lw_diag *d)
{
    lw_status status = check_finished(c, ".safetensors.", d);
    if (status != LW_OK) return status;
    if (has_entry(c, index_name)) status = list_from_index(c, d);
    else if (has_entry(c, whole_name)) status = add_shard(c, whole_name, false, d);
    else status = list_from_folder(c, false, d);
    if (status != LW_OK) return status;
    if (c->shard_count == 0) status = check_finished(c, "", d);
    if (status != LW_OK) return status;
    if (c->shard_count == 0)
        return lw_fail(d, LW_NOT_FOUND, "%s: the folder has no *.safetensors with weights", c->dir);
    status = list_from_folder(c, true, d);
    /* Folders list their files in any order; errors and totals must not depend on it. */
    qsort(c->shards, c->shard_count, sizeof *c->shards, compare_shards);
    return status;
}

static lw_status open_shards(lw_checkpoint *c, lw_diag *d)
{
    size_t count = 0;
    for (size_t i = 0; i < c->shard_count; i++) {
        const char *path = path_in(c, c->shards[i].name);
        if (path == NULL) return no_memory(c, d);
        const lw_status status = lw_safetensors_open(path, &c->shards[i].file, d);
        if (status != LW_OK) return status;
        count += lw_safetensors_count(c->shards[i].file);
        if (count > LW_LIMIT_TENSORS)
            return lw_fail(d, LW_NO_ROOM, "%s: more than %d tensors", c->dir, LW_LIMIT_TENSORS);
    }
    c->tensors = lw_arena_take_array(&c->arena, size_max(count, 1), sizeof *c->tensors);
    return c->tensors == NULL ? no_memory(c, d) : LW_OK;
}

/* The name under which a shard's tensor is found; NULL without memory. */
static const char *public_name(lw_checkpoint *c, const shard *s, const char *name)
{
    if (!s->is_side || has_beginning(name, side_prefix)) return name;
    const size_t prefix_bytes = sizeof side_prefix - 1, bytes = strlen(name);
    char *whole = lw_arena_take(&c->arena, prefix_bytes + bytes + 1);
    if (whole == NULL) return NULL;
    memcpy(whole, side_prefix, prefix_bytes);
    memcpy(whole + prefix_bytes, name, bytes);
    return whole;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const lw_tensor *)a)->name, ((const lw_tensor *)b)->name);
}

static lw_status join_tensors(lw_checkpoint *c, lw_diag *d)
{
    for (size_t i = 0; i < c->shard_count; i++) {
        const shard *s = &c->shards[i];
        for (size_t j = 0; j < lw_safetensors_count(s->file); j++) {
            lw_tensor *tensor = &c->tensors[c->tensor_count++];
            *tensor = *lw_safetensors_tensor(s->file, j);
            tensor->name = public_name(c, s, tensor->name);
            if (tensor->name == NULL) return no_memory(c, d);
            c->bytes += tensor->byte_count;
        }
    }
    qsort(c->tensors, c->tensor_count, sizeof *c->tensors, compare_names);
    for (size_t i = 1; i < c->tensor_count; i++) {
        const lw_tensor *a = &c->tensors[i - 1], *b = &c->tensors[i];
        if (strcmp(a->name, b->name) == 0)
            return lw_fail(d, LW_BAD_MODEL, "tensor \"%s\" stands in two files: %s and %s", a->name, a->file,
                           b->file);
    }
    return LW_OK;
}

static lw_status check_index(const lw_checkpoint *c, lw_diag *d)
{
    const char *tensor;
    json_t *value, *map = weight_map(c);
    if (map == NULL) return LW_OK;
    json_object_foreach(map, tensor, value) {
        const shard wanted = { .name = json_string_value(value) };
        const shard *s = bsearch(&wanted, c->shards, c->shard_count, sizeof wanted, compare_shards);
        LW_ASSERT(s != NULL);
        if (lw_safetensors_find(s->file, tensor) == NULL)
            return lw_fail(d, LW_BAD_MODEL, "%s: tensor \"%s\" is not in its shard %s",
                           lw_config_name(c->index), tensor, s->name);
    }
    return LW_OK;
}

lw_status lw_checkpoint_open(const char *dir, lw_checkpoint **out, lw_diag *d)
{
    *out = NULL;
    lw_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory", dir);
    /* Its contents are bounded by LW_LIMIT_TENSORS, LW_LIMIT_SHARDS and LW_LIMIT_NAME_BYTES. */
    lw_arena_init(&c->arena, SIZE_MAX);
    c->kept = &c->arena;
    lw_status status = LW_OK;
    size_t dir_bytes = strlen(dir);
    while (dir_bytes > 1 && dir[dir_bytes - 1] == '/') dir_bytes--; /* so that texts show "dir/file" */
    c->dir = lw_arena_copy_text(&c->arena, dir, dir_bytes);
    c->shards = lw_arena_take_array(&c->arena, LW_LIMIT_SHARDS, sizeof *c->shards);
    if (c->dir == NULL || c->shards == NULL) status = lw_fail(d, LW_NO_ROOM, "%s: no memory", dir);
    if (status == LW_OK) status = check_dir(c, d);
    if (status == LW_OK) status = open_configs(c, d);
    if (status == LW_OK) status = list_shards(c, d);
    if (status == LW_OK) status = open_shards(c, d);
    if (status == LW_OK) status = join_tensors(c, d);
    if (status == LW_OK) status = check_index(c, d);
    if (status != LW_OK) {
        lw_checkpoint_close(c);
        return status;
    }
    *out = c;
    return LW_OK;
}

void lw_checkpoint_close(lw_checkpoint *checkpoint)
{
    if (checkpoint == NULL) return;
    for (size_t i = 0; i < checkpoint->shard_count; i++) lw_safetensors_close(checkpoint->shards[i].file);
    lw_config_close(checkpoint->config);
    lw_config_close(checkpoint->generation);
    lw_config_close(checkpoint->quant);
    lw_config_close(checkpoint->index);
    lw_arena_deinit(&checkpoint->arena);
    free(checkpoint);
}

const char *lw_checkpoint_dir(const lw_checkpoint *checkpoint)
{
    return checkpoint->dir;
}

lw_config *lw_checkpoint_config(const lw_checkpoint *checkpoint)
{
    return checkpoint->config;
}

const lw_config *lw_checkpoint_quant(const lw_checkpoint *checkpoint)
{
    return checkpoint->quant;
}

const lw_config *lw_checkpoint_generation(const lw_checkpoint *checkpoint)
{
    return checkpoint->generation;
}

const lw_tensor *lw_checkpoint_find(const lw_checkpoint *checkpoint, const char *name)
{
    const lw_tensor wanted = { .name = name };
    return bsearch(&wanted, checkpoint->tensors, checkpoint->tensor_count, sizeof wanted, compare_names);
}

size_t lw_checkpoint_tensor_count(const lw_checkpoint *checkpoint)
{
    return checkpoint->tensor_count;
}

const lw_tensor *lw_checkpoint_tensor(const lw_checkpoint *checkpoint, size_t index)
{
    LW_ASSERT(index < checkpoint->tensor_count);
    return &checkpoint->tensors[index];
}

const char *lw_checkpoint_metadata(const lw_checkpoint *checkpoint, const lw_tensor *tensor, const char *key)
{
    for (size_t i = 0; i < checkpoint->shard_count; i++) {
        const lw_safetensors *file = checkpoint->shards[i].file;
        if (lw_safetensors_count(file) > 0 && lw_safetensors_tensor(file, 0)->file == tensor->file)
            return lw_safetensors_metadata(file, key);
    }
    return NULL;
}

uint64_t lw_checkpoint_bytes(const lw_checkpoint *checkpoint)
{
    return checkpoint->bytes;
}

/* Hints only: pages that stay, or come late, cost memory or time but never change an answer. */
static void advise(uintptr_t begin, uintptr_t end, int advice)
{
    if (begin < end) (void)madvise((void *)begin, end - begin, advice);
}

void lw_checkpoint_prefetch(const lw_checkpoint *checkpoint, const lw_tensor *tensor)
{
    (void)checkpoint;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)tensor->bytes;
    advise(begin / page * page, begin + tensor->byte_count, MADV_WILLNEED);
}

void *lw__checkpoint_keep(const lw_checkpoint *checkpoint, size_t count, size_t item_bytes)
{
    return lw_arena_take_array(checkpoint->kept, count, item_bytes);
}

/* Whole pages inside the tensor: those at its ends may hold its neighbours. */
void lw_checkpoint_release(const lw_checkpoint *checkpoint, const lw_tensor *tensor)
{
    (void)checkpoint;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)tensor->bytes;
    advise(size_round_up(begin, page), (begin + tensor->byte_count) / page * page, MADV_DONTNEED);
}
