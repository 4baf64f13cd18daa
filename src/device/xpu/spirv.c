/* Embedding; see spirv.h. xpu.mk names the file of each set that it made: none without ocloc, and no set for
 * DPAS while no kernel uses it.
 */
#include "device/xpu/spirv.h"

/* C17 has no #embed. */
#define EMBED(set, path) \
    __asm__(".pushsection .rodata\n" \
            ".balign 4\n" \
            ".globl lw__xpu_spirv_" #set "\n.hidden lw__xpu_spirv_" #set "\n" \
            "lw__xpu_spirv_" #set ":\n" \
            ".incbin \"" path "\"\n" \
            ".globl lw__xpu_spirv_" #set "_end\n.hidden lw__xpu_spirv_" #set "_end\n" \
            "lw__xpu_spirv_" #set "_end:\n" \
            ".byte 0\n.popsection\n"); \
    extern const uint8_t lw__xpu_spirv_##set[] __attribute__((visibility("hidden"))); \
    extern const uint8_t lw__xpu_spirv_##set##_end[] __attribute__((visibility("hidden")))
#define VIEW(set) \
    ((lw_xpu_spirv){ lw__xpu_spirv_##set, (size_t)(lw__xpu_spirv_##set##_end - lw__xpu_spirv_##set) })

#ifdef LW_XPU_SPIRV_COMMON
EMBED(common, LW_XPU_SPIRV_COMMON);
#endif
#ifdef LW_XPU_SPIRV_DPAS
EMBED(dpas, LW_XPU_SPIRV_DPAS);
#endif

lw_xpu_spirv lw_xpu_spirv_view(bool has_dpas)
{
#ifdef LW_XPU_SPIRV_DPAS
    if (has_dpas) return VIEW(dpas);
#endif
    (void)has_dpas;
#ifdef LW_XPU_SPIRV_COMMON
    return VIEW(common);
#else
    return (lw_xpu_spirv){ NULL, 0 };
#endif
}
