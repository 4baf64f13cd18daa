/* A model for tests of the server: include/lanewise.h without any arithmetic. See fake_lanewise.c. */
#ifndef LW_TESTS_SERVE_FAKE_LANEWISE_H
#define LW_TESTS_SERVE_FAKE_LANEWISE_H

#include "lanewise.h"

enum {
    FAKE_START = 256, /* <|im_start|> */
    FAKE_END,         /* <|im_end|>: ends a reply */
    FAKE_THINK_OPEN,
    FAKE_THINK_CLOSE,
    FAKE_BOS,
    FAKE_VOCAB,
};

/* Whether the calling thread finds no memory from now on; fake_driver.c has the means. */
void fake_starve(bool starves);

#endif
