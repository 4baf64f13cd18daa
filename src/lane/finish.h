/* Why a reply ended. */
#ifndef LW_LANE_FINISH_H
#define LW_LANE_FINISH_H

typedef enum lw_finish { LW_FINISH_END, LW_FINISH_LENGTH, LW_FINISH_STOPPED } lw_finish;

#endif
