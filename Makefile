# Lanewise: one Makefile; every flag that decides our bits is in it, and CFLAGS from outside are not read.
#   make           build/lanewise            make help      all targets
#   make demo      install, build, talk      make check     every test that this machine can run
# Variables: WERROR=1 warnings are errors; CC=gcc|clang; BUILD=folder; VARIANT=native|asan|tsan|fuzz|plain;
# EXTRA=more flags, of kinds that cannot change a sum; TEST_JOBS=programs at once.
ifeq ($(origin CC),default)
CC := gcc
endif
MAKEFLAGS += --no-print-directory
BUILD ?= build
VARIANT ?= native
WERROR ?= 0
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
TEST_JOBS ?= $(shell nproc)
OUT := $(BUILD)/$(VARIANT)
VENV := build/venv
VERSION := 0.1.0
# ---------------------------------------------------------------- libraries
PACKAGES := libpcre2-8 libutf8proc jansson libcrypto libevent_core
GOALS := $(or $(MAKECMDGOALS),all)
TEST_GOALS := test test-xpu check programs nightly asan tsan fuzz replay
ifneq ($(filter-out help clean deps demo venv format format-long tidy,$(GOALS)),)
ASKED := $(PACKAGES) $(if $(filter $(TEST_GOALS),$(GOALS)),cmocka)
PACKAGE_FLAGS := $(shell pkg-config --exists $(ASKED) && pkg-config --cflags $(PACKAGES))
ifneq ($(.SHELLSTATUS),0)
ABSENT := $(shell tools/deps --missing build $(if $(filter $(TEST_GOALS),$(GOALS)),test))
$(error Not installed: $(or $(ABSENT),what pkg-config knows as one of $(ASKED)). \
`make deps` installs what is missing)
endif
PACKAGE_LIBS := $(shell pkg-config --libs $(PACKAGES))
endif
# ---------------------------------------------------------------- flags
WARN := -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum
ifeq ($(WERROR),1)
WARN += -Werror
endif
OPT := -O2 -g
SAN_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
SAN_tsan := -fsanitize=thread -fno-omit-frame-pointer -O1
SAN_fuzz := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
SAN_plain := -O0
COVERAGE_fuzz := -fsanitize=fuzzer-no-link
NOT_EXTRA := $(filter-out -D% -U% -I% -L% -W% -g% -fstack-% -fcf-% -fdebug-% -fPI% -pie,$(EXTRA))
$(if $(NOT_EXTRA),$(error EXTRA takes no $(NOT_EXTRA): what could change a sum stands in the Makefile))
# gcc contracts a*b+c to fma unless told not to; where an fma is meant, the source says fma.
NUMBERS := -ffp-contract=off
CPP_FLAGS := -Isrc -Iinclude -D_GNU_SOURCE -DLW_VERSION='"$(VERSION)"' $(PACKAGE_FLAGS)
# Expanded at each use, since OPT and ISA differ by folder. Only what the header declares is visible outside.
C_FLAGS = $(EXTRA) -std=c17 $(OPT) $(NUMBERS) $(WARN) -pthread -fPIC -fvisibility=hidden \
    -ffile-prefix-map=$(CURDIR)=. $(SAN_$(VARIANT)) $(COVERAGE_$(VARIANT)) $(ISA)
LD_FLAGS := $(EXTRA) -pthread -Wl,--as-needed $(SAN_$(VARIANT))
LIBS := $(PACKAGE_LIBS) -lm
# ---------------------------------------------------------------- what there is
SOURCES := $(sort $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c))
ifneq ($(shell uname -m),x86_64)
SOURCES := $(filter-out src/device/cpu/avx%,$(SOURCES))
endif
OBJECTS := $(SOURCES:%.c=$(OUT)/%.o)
LIBRARY := $(OUT)/everything.a
# What reads outside data, and all that the fuzz entries need: no kernel, so that a fuzz build is quick.
PARSERS := $(OUT)/parsers.a
LIB_OBJECTS := $(filter-out $(OUT)/src/cli/% $(OUT)/src/serve/%,$(OBJECTS))
LIBRARIES := $(if $(filter native,$(VARIANT)),$(BUILD)/liblanewise.a $(BUILD)/liblanewise.so)
REF_OBJECTS := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard tests/ref/*.c tests/fake/*.c)))
TEST_SOURCES := $(sort $(wildcard tests/unit/*.c tests/law/*.c tests/golden/*.c))
TESTS := $(TEST_SOURCES:%.c=$(OUT)/%)
CANARIES := $(patsubst %.c,$(OUT)/%,$(sort $(wildcard tests/canary/*.c)))
DRIVERS := $(patsubst %.c,$(OUT)/%,$(sort $(wildcard tests/*/*_driver.c)))
TOOLS := $(patsubst %.c,$(OUT)/%,$(sort $(wildcard tools/*.c)))
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
REPLAYS := $(FUZZERS:%=$(OUT)/tests/fuzz/replay_%)
PYTESTS := $(sort $(wildcard tests/test_*.py tests/*/test_*.py))
# What has threads, for tsan: the programs named here, and those that read LW_TEST_THREADS.
THREADED := unit/base_pool $(patsubst tests/%.c,%,$(shell grep -ls LW_TEST_THREADS $(TEST_SOURCES) /dev/null))
# Programs that read LW_TEST_ISA run once for each instruction set that this processor has.
PER_ISA = $(patsubst %.c,$(OUT)/%,$(shell grep -ls LW_TEST_ISA $(TEST_SOURCES) /dev/null))
CPU_HAS := $(shell grep -sm1 ^flags /proc/cpuinfo)
has_all = $(if $(filter-out $(CPU_HAS),$(1)),,yes)
ISAS := generic $(if $(call has_all,avx2 fma f16c),avx2) \
    $(if $(call has_all,avx512f avx512bw avx512dq avx512vl),avx512f) \
    $(if $(call has_all,avx512f avx512bw avx512dq avx512vl avx512_vnni),avx512vnni \
    $(if $(call has_all,avx512_bf16),avx512bf16 $(if $(call has_all,amx_tile amx_bf16),avx512amx)))
# ---------------------------------------------------------------- build
.PHONY: help all test check programs asan tsan nightly fuzz replay deps demo bench bench-quick install \
    examples tidy format format-long compdb venv clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
PROGRAM := $(if $(filter native,$(VARIANT)),$(BUILD)/lanewise,$(OUT)/lanewise)
all: $(PROGRAM) $(LIBRARIES) $(TOOLS) ## build/lanewise, the library and the tools

$(BUILD)/lanewise: $(BUILD)/native/lanewise
	@cp -f $< $@
$(OUT)/lanewise: $(OUT)/src/main.o $(LIBRARY)
	@$(CC) $(LD_FLAGS) -o $@ $^ $(LIBS)
$(LIBRARY): $(OBJECTS)
$(PARSERS): $(filter $(foreach f,base model ops family text api serve,$(OUT)/src/$(f)/%),$(OBJECTS))
$(LIBRARY) $(PARSERS):
	@rm -f $@ && ar rcsD $@ $^
# One object, whose only global names are those of the header.
$(BUILD)/liblanewise.a: $(LIB_OBJECTS)
	@$(CC) -r -nostdlib -o $(OUT)/lanewise.o $^ && objcopy --localize-hidden $(OUT)/lanewise.o
	@rm -f $@ && ar rcsD $@ $(OUT)/lanewise.o
$(BUILD)/liblanewise.so: $(LIB_OBJECTS)
	@$(CC) -shared $(LD_FLAGS) -Wl,-soname,$(@F).0 -Wl,--no-undefined,-z,nodelete -o $@ $^ $(LIBS)
	@ln -sf $(@F) $@.0

include src/device/cpu/cpu.mk
$(OUT)/%.o: %.c $(OUT)/.flags Makefile
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CPP_FLAGS) $(C_FLAGS) -MMD -MP -c -o $@ $<

# Other flags than last time: everything is compiled again.
FLAGS := $(CC) $(CPP_FLAGS) $(C_FLAGS) $(LD_FLAGS) $(LIBS)
$(OUT)/.flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@

$(OUT)/tests/%: $(OUT)/tests/%.o $(REF_OBJECTS) $(LIBRARY)
	@$(CC) $(LD_FLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(LIBS)
$(OUT)/tests/serve/fake_driver: $(OUT)/tests/serve/fake_lanewise.o
$(OUT)/tests/serve/fake_driver: private LD_FLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
# What may fail there; see the program.
WRAPPED := malloc calloc realloc aligned_alloc strdup asprintf free mmap munmap
$(OUT)/tests/unit/failures: private LD_FLAGS += $(WRAPPED:%=-Wl,--wrap=%)
$(OUT)/tests/canary/%: $(OUT)/tests/canary/%.o
	@$(CC) $(LD_FLAGS) -o $@ $^ -lcmocka
$(OUT)/tests/fuzz/replay_%: $(OUT)/tests/fuzz/fuzz_%.o $(OUT)/tests/fuzz/replay_main.o $(PARSERS)
	@$(CC) $(LD_FLAGS) -o $@ $^ $(LIBS)
$(OUT)/tests/fuzz/fuzz_%: $(OUT)/tests/fuzz/fuzz_%.o $(PARSERS)
	@$(CC) $(LD_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)
$(OUT)/tools/%: $(OUT)/tools/%.o $(LIBRARY)
	@$(CC) $(LD_FLAGS) -o $@ $^ $(LIBS)
include src/device/xpu/xpu.mk src/cli/commit.mk
# ---------------------------------------------------------------- tests
RUN = LW_TEST_OUT=$(OUT) tests/run --canaries $(OUT)/tests/canary --jobs $(TEST_JOBS)
once = $(filter-out $(PER_ISA),$(1)) \
    $(foreach i,$(ISAS),$(foreach t,$(filter $(PER_ISA),$(1)),'LW_TEST_ISA=$(i) $(t)'))
SERVED = --pytest $(VENV)/bin/python $(foreach p,$(wildcard tests/serve/test_fake_*.py),--pytest-file $(p))
DEMO_ITEM = $(if $(wildcard tests/golden/demo.txt),'tools/demo --check $(OUT)/lanewise')
REPLAY_ITEMS = $(foreach f,$(FUZZERS),'$(OUT)/tests/fuzz/replay_$(f) tests/fuzz/corpus/$(f)')

test: all $(CANARIES) $(TESTS) ## the quick core: unit and law programs, under a minute
	@$(RUN) --timeout 300 $(TESTS)

check: all $(CANARIES) $(TESTS) $(REPLAYS) $(DRIVERS) ## every test that this machine can run
	@$(if $(PYTESTS),$(MAKE) -s venv || echo "pytest is missing: see above")
	@$(RUN) --timeout 1800 $(if $(PYTESTS),--pytest $(VENV)/bin/python) $(PYTESTS:%=--pytest-file %) \
	    tools/tidy 'tools/tidy --self-test' $(call once,$(TESTS)) $(REPLAY_ITEMS) $(DEMO_ITEM)

# All compiled programs of one variant; what asan and nightly run.
programs: all $(CANARIES) $(TESTS) $(REPLAYS) $(DRIVERS)
	@$(RUN) --timeout 2400 $(SERVED) $(call once,$(TESTS)) $(REPLAY_ITEMS) $(DEMO_ITEM)

asan: ## the compiled tests under the address and undefined-behaviour sanitizers
	@$(MAKE) VARIANT=asan programs

ifeq ($(VARIANT),tsan)
TSAN_TESTS := $(filter $(THREADED:%=$(OUT)/tests/%),$(TESTS))
tsan: $(CANARIES) $(TSAN_TESTS) $(OUT)/tests/serve/fake_driver
	@LW_TEST_THREADS=2 $(RUN) --timeout 2400 $(SERVED) $(TSAN_TESTS)
else
tsan: ## the threaded tests under the thread sanitizer
	@$(MAKE) VARIANT=tsan tsan
endif

replay: $(CANARIES) $(REPLAYS) ## the fuzz corpora through the fuzz entries
	@$(RUN) $(REPLAY_ITEMS)

ifeq ($(VARIANT),fuzz)
fuzz: $(FUZZERS:%=$(OUT)/tests/fuzz/fuzz_%)
	@$(foreach f,$(FUZZERS),echo "== fuzz_$(f)"; mkdir -p $(OUT)/corpus/$(f); \
	    $(OUT)/tests/fuzz/fuzz_$(f) -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
	    -print_final_stats=1 -artifact_prefix=$(OUT)/crash_$(f)_ $(OUT)/corpus/$(f) \
	    tests/fuzz/corpus/$(f) || exit 1;)
else
fuzz: ## libFuzzer on every tests/fuzz/fuzz_*.c (clang), FUZZ_SECONDS each
	@$(MAKE) CC=clang VARIANT=fuzz fuzz
endif

nightly: ## LW_TEST_LONG=1 natively and sanitized, -O0, clang, and ten minutes of each fuzzer
	@LW_TEST_LONG=1 $(MAKE) check
	@$(MAKE) VARIANT=plain programs
	@$(MAKE) CC=clang BUILD=build-clang programs
	@LW_TEST_LONG=1 $(MAKE) asan
	@LW_TEST_LONG=1 $(MAKE) tsan
	@$(MAKE) fuzz FUZZ_SECONDS=600

$(VENV)/.done: tests/requirements.txt
	@echo "  VENV $(VENV)"
	@rm -rf $(VENV) && python3 -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@
venv: $(VENV)/.done ## build/venv: Python for tests, versions pinned in tests/requirements.txt

tidy: ## the rules of docs/STYLE.md that a program can hold
	@tools/tidy

# ---------------------------------------------------------------- the rest
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile src/*/*/*.mk
	@sed -n 's/^# \(Variables: .*\)/\n\1/p; s/^# \(EXTRA=.*\)/\1/p' Makefile

deps: ## installs missing packages with apt (YES=1: without asking; DEPS=ci or xpu: more)
	@YES=$(YES) tools/deps build test $(DEPS)

demo: ## installs, builds and talks to the small model that ships with the source
	@YES=$(YES) tools/deps build && $(MAKE) all
	@tools/demo

bench: all ## measures real shapes beside other engines, and the tokenizer, into docs/perf/RESULTS.md
	@$(MAKE) -s venv || echo "the HF library is missing: see above"
	@tools/bench
bench-quick: all ## the same for a 1.2B model in 4 bits alone, in under a minute
	@tools/bench --quick

install: all ## PREFIX=/usr/local DESTDIR=
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) tools/install $(OUT) $(BUILD) $(VERSION)

examples: all ## build/examples: small programs over build/liblanewise.so
	@mkdir -p $(BUILD)/examples; $(foreach e,$(wildcard examples/*.c),$(CC) -std=c17 $(WARN) -Iinclude \
	    -o $(BUILD)/$(basename $(e)) $(e) -L$(BUILD) -llanewise -Wl,-rpath,'$$ORIGIN/..' || exit 1;)

CLANG_FORMAT = $(or $(shell command -v clang-format-14),clang-format) -i
C_FILES = git ls-files -co --exclude-standard '*.c' '*.h'
format: ## clang-format 14 over all C files
	@$(C_FILES) | xargs $(CLANG_FORMAT)
format-long: ## the same, but only where a line is too long
	@$(C_FILES) | while read -r f; do at=$$(awk 'length > 110 { printf " --lines=%d:%d", NR, NR }' "$$f"); \
	    if [ -n "$$at" ]; then $(CLANG_FORMAT) $$at "$$f"; fi; done

compdb: ## compile_commands.json for clangd
	@$(MAKE) -Bn all $(TESTS) | awk 'BEGIN { printf "[" } / -c -o / { file = $$NF; gsub(/["\\]/, "\\\\&"); \
	    printf "%s\n{\"directory\": \"$(CURDIR)\", \"file\": \"%s\", \"command\": \"%s\"}", comma, file, $$0; \
	    comma = "," } END { print "\n]" }' >compile_commands.json

clean: ## removes what was built; build/venv stays
	rm -rf $(addprefix $(BUILD)/,native asan tsan fuzz plain ci examples lanewise liblanewise.*) build-clang

-include $(OBJECTS:.o=.d) $(TESTS:=.d) $(CANARIES:=.d) $(DRIVERS:=.d) $(TOOLS:=.d) $(REF_OBJECTS:.o=.d) \
    $(FUZZERS:%=$(OUT)/tests/fuzz/fuzz_%.d) $(OUT)/tests/fuzz/replay_main.d $(OUT)/src/main.d
