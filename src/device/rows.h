/* What devices work out on the host from the rows of a batch: where their open history lies, and the sines of
 * their positions.
 */
#ifndef LW_DEVICE_ROWS_H
#define LW_DEVICE_ROWS_H

#include "device/device.h"

enum { LW_LINEAGE_MAX = 1 << 16 }; /* slots of all tree rows of one batch: windows are short */

/* Whether a row and all of its open ancestors stand at slot == position, so that it needs no lineage;
 * is_chain[0, index) holds the answer for the rows before it. */
bool lw_row_is_chain(const lw_batch *batch, uint32_t index, const bool *is_chain);

/* Writes the slots of the positions [committed, row.position] to slots, oldest first, and returns their
 * number; 0, with nothing written, if they are more than room. */
uint32_t lw_row_lineage(const lw_batch *batch, uint32_t index, uint32_t *slots, uint32_t room);

/* cosines[half] and sines[half] of a position, in double, rounded once. */
void lw_rope_angles(const lw_rope_table *table, uint32_t position, float *cosines, float *sines);

/* The id of the highest of logits[vocab], of equals the lowest; -1 where one is NaN or infinite. */
int32_t lw_logits_best(const float *logits, uint32_t vocab);

#endif
