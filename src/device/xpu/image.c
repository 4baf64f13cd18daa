/* Modules as the driver built them, kept in the user's cache folder so that the next start need not build
 * them again. The key is all that a build depends on; a file is a head, the SHA-256 of what follows, and
 * that. Whatever is wrong with one, the answer is that there is none, and the caller builds.
 */
#include "device/xpu/image.h"

#include "base/kept.h"
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

enum { KEY_CHARS = 2 * LW_SHA256_BYTES, HEAD_BYTES = 24, IMAGE_BYTES_MAX = 256 << 20 };

static const char head[HEAD_BYTES] = "lanewise xpu image 1\n";

/* The uuid is the card's own: Intel's holds the stepping, which nothing else tells on every driver. */
static bool key_make(const lw_device *device, const lw_xpu_source *source, char key[KEY_CHARS + 1])
{
    const lw_xpu_info *info = &device->info;
    uint8_t digest[LW_SHA256_BYTES];
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_sha256(source->bytes, source->count, digest);
    lw_status status = lw_buf_append(&text, digest, sizeof digest);
    if (status == LW_OK) status = lw_buf_append(&text, info->uuid, sizeof info->uuid);
    if (status == LW_OK)
        status = lw_buf_printf(&text, "|%u|%u|%u|%s|%s", info->driver_version, info->vendor_id,
                               info->device_id, info->name, source->build_flags);
    lw_sha256(text.bytes, text.count, digest);
    lw_buf_deinit(&text);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(key + 2 * i, 3, "%02x", digest[i]);
    return status == LW_OK;
}

bool lw__xpu_image_read(const lw_device *device, const lw_xpu_source *source, lw_buf *image)
{
    char key[KEY_CHARS + 1];
    uint8_t digest[LW_SHA256_BYTES];
    const size_t before = HEAD_BYTES + LW_SHA256_BYTES;
    lw_buf_clear(image);
    if (device->images == NULL || !key_make(device, source, key)) return false;
    if (lw_kept_read(device->images, key, image, NULL) != LW_OK || image->count <= before) return false;
    lw_sha256(image->bytes + before, image->count - before, digest);
    if (memcmp(image->bytes, head, HEAD_BYTES) != 0) return false;
    if (memcmp(image->bytes + HEAD_BYTES, digest, sizeof digest) != 0) return false;
    memmove(image->bytes, image->bytes + before, image->count - before);
    image->count -= before;
    return true;
}

/* The file's bytes: head, digest, image. */
static lw_status file_make(const lw_device *device, lw_buf *file)
{
    const lw_ze *ze = &device->ze;
    uint8_t digest[LW_SHA256_BYTES] = { 0 };
    size_t bytes = 0;
    if (ze->zeModuleGetNativeBinary(device->module, &bytes, NULL) != LW_ZE_RESULT_SUCCESS || bytes == 0)
        return LW_UNSUPPORTED;
    lw_status status = lw_buf_append(file, head, sizeof head);
    if (status == LW_OK) status = lw_buf_append(file, digest, sizeof digest);
    if (status == LW_OK) status = lw_buf_reserve(file, bytes);
    if (status != LW_OK) return status;
    uint8_t *image = (uint8_t *)file->bytes + file->count;
    if (ze->zeModuleGetNativeBinary(device->module, &bytes, image) != LW_ZE_RESULT_SUCCESS)
        return LW_UNSUPPORTED;
    lw_sha256(image, bytes, digest);
    memcpy(file->bytes + HEAD_BYTES, digest, sizeof digest);
    file->count += bytes;
    return LW_OK;
}

void lw__xpu_image_save(const lw_device *device, const lw_xpu_source *source)
{
    char key[KEY_CHARS + 1];
    lw_buf file;
    if (device->images == NULL || !key_make(device, source, key)) return;
    lw_buf_init(&file, IMAGE_BYTES_MAX);
    lw_status status = file_make(device, &file);
    /* A folder that cannot be written costs the next start its time, and nothing else. */
    if (status == LW_OK) status = lw_kept_save(device->images, key, file.bytes, file.count, NULL);
    (void)status;
    lw_buf_deinit(&file);
}
