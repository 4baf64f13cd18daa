# Lanewise: one Makefile, every flag that decides our bits in sight.
#   make            build/lanewise and what the tests need        make help    all targets
# Variables: WERROR=1 warnings are errors; BUILD=dir; VARIANT=native|asan|tsan; CC=gcc|clang.

CC ?= gcc
BUILD ?= build
VARIANT ?= native
WERROR ?= 0
OUT := $(BUILD)/$(VARIANT)
PACKAGES := libpcre2-8 libutf8proc jansson libcrypto

WARN := -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum
ifeq ($(WERROR),1)
WARN += -Werror
endif
OPT := -O2 -g
SAN_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
SAN_tsan := -fsanitize=thread -fno-omit-frame-pointer -O1
# gcc contracts a*b+c to fma unless told not to; where an fma is meant, the source says fma.
NUMBERS := -ffp-contract=off
CPPFLAGS := -Isrc -Iinclude -D_GNU_SOURCE $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
CFLAGS := -std=c17 $(OPT) $(NUMBERS) $(WARN) -pthread -ffile-prefix-map=$(CURDIR)/= $(SAN_$(VARIANT))
LDFLAGS := -pthread $(SAN_$(VARIANT))
LDLIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lm

SOURCES := $(sort $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c))
OBJECTS := $(SOURCES:%.c=$(OUT)/%.o)
LIBRARY := $(OUT)/liblanewise.a
UNIT_SOURCES := $(sort $(wildcard tests/unit/*.c))
LAW_SOURCES := $(sort $(wildcard tests/law/*.c))
REF_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard tests/ref/*.c)))
TESTS := $(patsubst tests/%.c,$(OUT)/tests/%,$(UNIT_SOURCES) $(LAW_SOURCES))

# Flags of one instruction set stand only on the files of its folder; the choice is made at run time.
$(OUT)/src/device/cpu/avx2/%.o: ISA := -mavx2 -mfma -mf16c
$(OUT)/src/device/cpu/avx512/%.o: ISA := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
$(OUT)/src/device/cpu/avx512bf16/%.o: ISA := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mfma -mf16c
# The kernels are written for the vectoriser; it does not change any sum without fast-math.
$(OUT)/src/device/cpu/%.o: OPT := -O3 -g

.PHONY: all test check clean
all: $(BUILD)/lanewise

$(BUILD)/lanewise: $(OUT)/lanewise
	@cp -f $< $@
$(OUT)/lanewise: $(OUT)/src/main.o $(LIBRARY)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(LIBRARY): $(OBJECTS)
	@rm -f $@
	@ar rcsD $@ $^
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(ISA) -MMD -MP -c -o $@ $<
$(OUT)/tests/%: $(OUT)/tests/%.o $(REF_OBJECTS) $(LIBRARY)
	@$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

test: all $(TESTS)
	@for t in $(TESTS); do echo "== $$t"; timeout 300 $$t || exit 1; done

clean:
	rm -rf $(BUILD)/native $(BUILD)/asan $(BUILD)/tsan $(BUILD)/lanewise

-include $(OBJECTS:.o=.d) $(TESTS:=.d) $(OUT)/src/main.d
.SECONDARY:
