/* Every limit on data from outside, with the reason for its value. A loop over such data names one of these.
 */
#ifndef LW_BASE_LIMITS_H
#define LW_BASE_LIMITS_H

enum {
    LW_LIMIT_HEADER_BYTES = 100 << 20, /* safetensors header: the format's own limit */
    LW_LIMIT_TENSORS = 1 << 20, /* tensors in one checkpoint: experts stored singly stay below 100,000 */
    LW_LIMIT_TENSOR_DIMS = 8,   /* dimensions of one tensor: nothing served has more than 4 */
    LW_LIMIT_NAME_BYTES = 1024, /* one tensor's name: real ones stay below 150 */
    LW_LIMIT_METADATA = 4096,   /* pairs in a safetensors __metadata__: real ones hold a handful */
    LW_LIMIT_SHARDS = 4096,     /* files of one checkpoint: the largest known models have a few hundred */
    LW_LIMIT_SPELLINGS = 64,    /* spellings tried for one name: aliases multiply, real tables give 8 */
    LW_LIMIT_CONFIG_BYTES = 64 << 20,     /* config.json and the index file: the index is the larger */
    LW_LIMIT_TOKENIZER_BYTES = 256 << 20, /* tokenizer.json: real ones stay below 40 MiB */
    LW_LIMIT_VOCAB = 1 << 21,             /* token ids: the largest known vocabulary is below 2^19 */
    LW_LIMIT_TOKEN_BYTES = 64 << 10,      /* bytes of one token's text */
    LW_LIMIT_PATTERN_BYTES = 64 << 10,    /* one pre-tokenizer pattern */
    LW_LIMIT_PATTERN_STEPS =
        1 << 24, /* backtracking steps of one match: above the longest word, below a hang */
    LW_LIMIT_PATTERN_KIB = 1 << 18,    /* memory of one match without the JIT compiler, in KiB */
    LW_LIMIT_SPLIT_STEPS = 16,         /* Split steps of one pre-tokenizer: real ones have at most 4 */
    LW_LIMIT_MERGES = 1 << 22,         /* merge rules: each makes a token, few make the same one */
    LW_LIMIT_ADDED_BYTES = 1 << 10,    /* text of one added token: bounds the walk at each byte of a prompt */
    LW_LIMIT_AROUND_IDS = 64,          /* ids that a post-processor puts on one side of a text */
    LW_LIMIT_WORD_BYTES = 8 << 20,     /* one pre-token: merging needs 40 bytes of memory for each */
    LW_LIMIT_TEMPLATE_BYTES = 1 << 20, /* chat template source */
    LW_LIMIT_TEMPLATE_DEPTH = 100,     /* nesting of template expressions, statements, calls and data */
    LW_LIMIT_TEMPLATE_OUTPUT = 64 << 20, /* bytes of one text that a rendering builds */
    LW_LIMIT_TEMPLATE_MEMORY =
        256 << 20,                   /* bytes of all values of one rendering: a text is copied a few times */
    LW_LIMIT_TEMPLATE_FRAMES = 1000, /* evaluations inside one another: bounds the C stack to about 1 MiB */
    LW_LIMIT_TEMPLATE_STEPS = 20000000, /* evaluation steps of one rendering, so that a loop ends */
    LW_LIMIT_PROMPT_BYTES = 64 << 20,   /* text of one prompt */
    LW_LIMIT_LAYERS = 1024,             /* layers of one model */
    LW_LIMIT_WIDTH = 1 << 20,           /* width of any activation */
    LW_LIMIT_LANES = 256,               /* lanes of one device batch */
    LW_LIMIT_CONTEXT = 1 << 22,         /* positions of one stream */
    LW_LIMIT_DEVICE_WAIT_S = 3600,      /* for what a device was given: no forward takes an hour */
    LW_LIMIT_HTTP_HEAD_BYTES = 64 << 10,   /* request line and headers: browsers' cookies stay below 32 KiB */
    LW_LIMIT_HTTP_TARGET_BYTES = 8 << 10,  /* path and query: ours are short, proxies add to them */
    LW_LIMIT_HTTP_HEADERS = 100,           /* clients send about 20 */
    LW_LIMIT_HTTP_CHUNK_LINE = 1 << 10,    /* size and extensions of one chunk */
    LW_LIMIT_HTTP_TRAILER_BYTES = 8 << 10, /* lines after the last chunk; they are read and dropped */
    LW_LIMIT_HTTP_AHEAD_BYTES = 256 << 10, /* sent before the last reply ended: a small next request fits */
    LW_LIMIT_BODY_BYTES = 32 << 20,        /* one request's body: a full context of text is below 16 MiB */
    LW_LIMIT_BODIES_BYTES = 256 << 20,     /* all bodies that are held at once */
    LW_LIMIT_CONNECTIONS = 16384,          /* open connections: each holds a few KiB and a file descriptor */
    LW_LIMIT_JOBS = 1024,                  /* requests between their last byte and their reply's */
    LW_LIMIT_MESSAGES = 16384,             /* messages of one conversation */
    LW_LIMIT_PARTS = 4096,                 /* text parts of one message */
    LW_LIMIT_TOOLS = 1024,                 /* tools that one request offers */
    LW_LIMIT_STOPS = 64,                   /* stop strings of one request: each is compared at every byte */
    LW_LIMIT_STOP_BYTES = 1 << 10,         /* one stop string: as much text may be held back */
    LW_LIMIT_BIASES = 4096,                /* entries of logit_bias */
    LW_LIMIT_NEWS_BYTES = 64 << 10,        /* of one reply, waiting for its connection; then it pauses */
    LW_LIMIT_UNSENT_BYTES = 256 << 10,     /* of one connection; then its reply's news are left waiting */
    LW_LIMIT_API_KEYS = 1024,              /* keys that a server knows: each request is compared with all */
    LW_LIMIT_KEY_FILE_BYTES = 1 << 20,     /* --api-key-file */
};

#endif
