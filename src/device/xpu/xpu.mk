# The xpu device's kernels, and the emulated device that runs them on this processor: x86-64 alone, the kernels
# by clang alone. The device itself needs nothing of it: it opens Level Zero at run time. Read by the Makefile.
EMULATED := $(OUT)/libze_lanewise_cpu.so
EMULATED_MODULES := $(OUT)/xpu/kernels_cpu.so $(OUT)/xpu/probe_cpu.so
XPU_KERNELS := $(sort $(wildcard src/device/xpu/kernels/*.cl))
XPU_HEADERS := $(wildcard src/device/xpu/kernels/*.h) src/device/xpu/kargs.h $(wildcard src/device/xpu/*forms.list)
EMULATED_HEADERS := $(wildcard tests/xpu/*.h) src/device/xpu/ze_abi.h src/device/xpu/ze.list
CLANG_CL := $(firstword $(shell command -v clang clang-14 clang-15 clang-16))
XPU_TESTS := $(filter $(OUT)/tests/unit/xpu_% $(OUT)/tests/law/xpu_%,$(TESTS))
ifeq ($(shell uname -m),x86_64)
$(XPU_TESTS) check programs: | $(EMULATED) $(if $(and $(CLANG_CL),$(call has_all,avx2 fma)),$(EMULATED_MODULES))
endif

# Fibers switch stacks under the sanitizers' feet: this library and its kernels are never instrumented.
EMULATED_FLAGS := -std=c17 -O2 -g $(NUMBERS) $(WARN) -fPIC -fvisibility=hidden -Isrc -Itests/xpu -D_GNU_SOURCE
$(EMULATED): tests/xpu/emulated_ze.c tests/xpu/emulated_run.c $(EMULATED_HEADERS) Makefile
	@mkdir -p $(@D)
	@echo "  LINK $@"
	@$(CC) $(EMULATED_FLAGS) -shared -Wl,--no-undefined -o $@ $(filter %.c,$^) -ldl

# OpenCL C for this processor. fma has to be an instruction: a call of libm's for each would take for ever.
CL_FLAGS := -x cl -cl-std=CL3.0 --target=x86_64-pc-linux-gnu -mavx2 -mfma -O2 -fPIC $(NUMBERS) \
    -Xclang -cl-ext=+all -Xclang -finclude-default-header -Isrc -Itests/xpu -include emulated_builtins.h
$(OUT)/xpu/%.o: src/device/xpu/kernels/%.cl $(XPU_HEADERS) $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	@echo "  CL $<"
	@$(CLANG_CL) $(CL_FLAGS) -c -o $@ $<
$(OUT)/xpu/%.o: tests/xpu/%.cl $(XPU_HEADERS) $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	@echo "  CL $<"
	@$(CLANG_CL) $(CL_FLAGS) -c -o $@ $<
$(OUT)/xpu/emulated_glue.o: tests/xpu/emulated_glue.c $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	@$(CC) $(EMULATED_FLAGS) -c -o $@ $<
$(OUT)/xpu/kernels_cpu.so: $(XPU_KERNELS:src/device/xpu/kernels/%.cl=$(OUT)/xpu/%.o)
$(OUT)/xpu/probe_cpu.so: $(OUT)/xpu/probe.o
$(EMULATED_MODULES): $(OUT)/xpu/emulated_glue.o
	@$(CC) -shared -Wl,--no-undefined,--allow-multiple-definition -o $@ $^ -lm

# Whose entries may be hidden there; see the program.
$(OUT)/tests/unit/xpu_device: private LD_FLAGS += -Wl,--wrap=dlsym
