/* How a repacked weight lies in memory; read by repack.c, which writes it, and by the kernels.
 *
 * A block is block_cols neighbouring output columns, one per vector lane; a panel is up to LW__PANEL_BLOCKS
 * blocks.
 *   memory: [member][panel][group][block of the panel] -> one group of one block:
 *           scales [block_cols], biases [block_cols] (if stored), low words, high words
 * so that whatever the row count, a panel is read once and in order.
 *
 * Codes of 3, 5 and 6 bits are split in a low plane of 2 or 4 bits and a high plane of the rest, so that
 * planes fill
 * 32-bit words and no bit is wasted. A vector of words holds one word per column.
 *   LW__READ_FLOAT: code j of a low word lies at low_bits * j and is taken by a mask, without a shift: its
 *   value is
 *     code * 2^(low_bits * j), and x was multiplied by the inverse, which is exact. The last code is shifted
 *     down instead, since as a signed integer it would be negative. The bits of the high plane stand where
 *     they continue the low code: (low_bits * (j + 1)) mod 32, the n-th low word that shares a high word n *
 *     high_bits further up.
 *   LW__READ_PAIRS: the halves of a word hold even and odd k, the i-th pair at bits * i of its half; each
 *   plane alike.
 *   LW__READ_INT8: the bytes of a word hold k, k + 1, k + 2 and k + 3, the i-th four of them at bits * i of
 *   each byte; each plane alike.
 * 4-bit indices of a table lie as 4-bit integers do, and are shifted down before they are looked up.
 * bf16 has two k in a word (the even one low); fp16, fp32 and e4m3 lie as [k][block_cols].
 */
#ifndef LW_DEVICE_CPU_LINEAR_WEIGHT_H
#define LW_DEVICE_CPU_LINEAR_WEIGHT_H

#include "device/cpu/linear.h"

enum {
    LW__PANEL_BLOCKS = 8,
    LW__BLOCKS_UNIT = 2,      /* columns are padded to whole pairs of blocks */
    LW__GROUP_UNIT = 16,      /* a group is a multiple of it: the places of codes in words repeat so */
    LW__GROUP_UNIT_SPLIT = 32, /* the same where a plane of single bits must fill its words */
    LW__GROUP_MAX = 256,      /* kernels hold a decoded group of two blocks on their stack */
    LW__DENSE_GROUP = 64,
};

typedef enum lw__form {
    LW__FORM_INT2, LW__FORM_INT3, LW__FORM_INT4, LW__FORM_INT5, LW__FORM_INT6, LW__FORM_INT8,
    LW__FORM_TABLE4, LW__FORM_BF16,                /* up to here the bf16 dot can read them */
    LW__FORM_E4M3, LW__FORM_FP16, LW__FORM_FP32,
    LW__FORM_COUNT
} lw__form;

/* How the kernels read x: fp32 and fma, bf16 pairs and the bf16 dot, or four int8 and a dot of bytes. */
typedef enum lw__read { LW__READ_FLOAT, LW__READ_PAIRS, LW__READ_INT8 } lw__read;

/* Some bits of every code, in words of 32 / bits consecutive k. */
typedef struct lw__plane {
    uint32_t bits;            /* 0: the plane is absent */
    uint32_t drop;            /* the code's lower bits, which are in the other plane */
    uint8_t shift[32];        /* [32 / bits]: where code k of a word lies */
} lw__plane;

/* What all of one member's sums are multiplied by. */
typedef struct lw__global {
    float factor; /* of the kernels: the global scale, and the powers of two that codes left out */
    float scale;              /* as the checkpoint has it */
    bool divides;
} lw__global;

struct lw_cpu_weight {
    uint8_t *memory;          /* lw_huge_make(stack_count * member_bytes) */
    size_t member_bytes;      /* one matrix of the stack */
    uint32_t stack_count, rows, cols;
    uint32_t block_cols, block_count;   /* block_count is a multiple of LW__BLOCKS_UNIT */
    uint32_t group, group_count;        /* group_count * group >= cols: dense weights are padded with zeros */
    size_t group_bytes;       /* one group of one block */
    uint32_t bias_at, words_at, high_at; /* bytes in a group; the scales are first */
    lw__form form;
    lw__read read;
    lw__plane low, high;      /* integer codes and bf16; unused for fp16 and fp32 */
    lw_dtype scale_type;
    float table[16];          /* of LW__FORM_TABLE4: exact in bf16 */
    const lw_cpu_int8_kernels *int8; /* of LW__READ_INT8; else NULL */
    int32_t zero;             /* of LW__READ_INT8, without stored biases: the code that stands for 0 */
    uint8_t table_codes[16];  /* of LW__READ_INT8 and LW__FORM_TABLE4: twice the table's values, plus zero */
    lw__global *globals;      /* [stack_count] */
    bool has_scale, has_bias;           /* what is stored */
    float bias_per_scale;     /* without stored biases */
};

/* Blocks of the panel that begins at block `first`. */
static inline uint32_t lw__panel_blocks(const lw_cpu_weight *w, uint32_t first)
{
    const uint32_t left = w->block_count - first;
    return left < LW__PANEL_BLOCKS ? left : LW__PANEL_BLOCKS;
}

/* One group of one block of a member of the stack. */
static inline uint8_t *lw__group_at(const lw_cpu_weight *w, uint32_t member, uint32_t block, uint32_t group)
{
    const uint32_t first = block - block % LW__PANEL_BLOCKS;
    const size_t groups_before = (size_t)first * w->group_count + (size_t)group * lw__panel_blocks(w, first);
    return w->memory + member * w->member_bytes + (groups_before + block - first) * w->group_bytes;
}

/* Words that prepare fills per row of floats: x, then one sum per group. */
static inline size_t lw__prepared_x_words(const lw_cpu_weight *w)
{
    const size_t padded = (size_t)w->group * w->group_count;
    return w->read == LW__READ_PAIRS ? padded / 2 : padded;
}

/* The factor that undoes the place of code k in its low word. */
static inline float lw__x_factor(const lw_cpu_weight *w, uint32_t k)
{
    if (w->read != LW__READ_FLOAT || w->form > LW__FORM_INT8) return 1.0f;
    const uint32_t codes = 32 / w->low.bits, j = k % codes;
    if (j == codes - 1) return 1.0f;
    return 1.0f / (float)(1u << (w->low.bits * j));
}

#endif
