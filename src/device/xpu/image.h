/* What a module is made from, and the kept images of what a driver made of it; see image.c. */
#ifndef LW_DEVICE_XPU_IMAGE_H
#define LW_DEVICE_XPU_IMAGE_H

#include "base/buf.h"
#include "device/xpu/queue.h"

typedef struct lw_xpu_source {
    const uint8_t *bytes;                /* SPIR-V, or an image of one device */
    size_t count;
    const char *build_flags;             /* for the driver's compiler */
    const char *name;                    /* for texts */
} lw_xpu_source;

/* The image kept for source on this device, into image; false: there is none that is whole. */
bool lw__xpu_image_read(const lw_device *device, const lw_xpu_source *source, lw_buf *image) LW_MUST_USE;

/* Keeps device->module, which the driver built from source, where that can be. */
void lw__xpu_image_save(const lw_device *device, const lw_xpu_source *source);

#endif
