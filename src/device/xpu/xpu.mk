# The xpu device's kernels: as SPIR-V in the program, made by Intel's offline compiler where it is installed, and
# by clang for the emulated device, which is for x86-64 alone. Read by the Makefile.
#   XPU=1    no program without kernels for Intel's cards: an error where ocloc is missing
#   OCLOC=   another ocloc; empty: none, and a program without those kernels
# One for all variants, which do not differ in it: see EMULATED_FLAGS.
XPU_OUT := $(BUILD)/native/xpu
EMULATED := $(BUILD)/native/libze_lanewise_cpu.so
EMULATED_MODULES := $(XPU_OUT)/kernels_cpu.so $(XPU_OUT)/probe_cpu.so
XPU_KERNELS := $(sort $(wildcard src/device/xpu/kernels/*.cl))
XPU_HEADERS := $(wildcard src/device/xpu/kernels/*.h src/device/xpu/kargs*.h src/device/xpu/*forms.list)
EMULATED_HEADERS := $(wildcard tests/xpu/*.h) src/device/xpu/ze_abi.h src/device/xpu/zes_abi.h src/device/xpu/ze.list
XPU_DPAS_KERNELS := $(filter %_dpas.cl,$(XPU_KERNELS))
ifeq ($(origin OCLOC),undefined)
OCLOC := $(shell command -v ocloc)
endif
ifeq ($(XPU)$(OCLOC),1)
$(error XPU=1, but there is no ocloc. Debian's package intel-opencl-icd has it; `tools/deps xpu` installs it)
endif
CLANG_CL := $(firstword $(shell command -v clang clang-14 clang-15 clang-16))
XPU_TESTS := $(filter $(OUT)/tests/unit/xpu_% $(OUT)/tests/law/xpu_%,$(TESTS))
ifeq ($(shell uname -m),x86_64)
$(XPU_TESTS) check programs: | $(EMULATED) $(if $(and $(CLANG_CL),$(call has_all,avx2 fma)),$(EMULATED_MODULES))
endif

# A set is one file that includes the set's kernels: they share one scope, so that no name means two things. What
# ocloc makes of it does not depend on the device; how a driver builds it is said in module.c. That for DPAS goes
# without what its own kernels stand for: all of linears.cl, and most of linear.cl and experts.cl (forms.list).
XPU_SETS := $(if $(OCLOC),common $(if $(XPU_DPAS_KERNELS),dpas))
$(XPU_OUT)/common.cl: $(filter-out $(XPU_DPAS_KERNELS),$(XPU_KERNELS))
$(XPU_OUT)/dpas.cl: $(filter-out %/linears.cl,$(XPU_KERNELS))
$(XPU_OUT)/common.spv: private OCLOC_FOR := -device tgllp
$(XPU_OUT)/dpas.spv: private OCLOC_FOR := -device pvc
$(XPU_OUT)/dpas.spv: private OCLOC_FLAGS := -DLW_DPAS=1
$(XPU_OUT)/common.cl $(XPU_OUT)/dpas.cl: src/device/xpu/xpu.mk
	@mkdir -p $(@D)
	@printf '#include "%s"\n' $(patsubst src/%,%,$(filter %.cl,$^)) >$@
$(XPU_OUT)/%.spv: $(XPU_OUT)/%.cl $(XPU_KERNELS) $(XPU_HEADERS)
	@echo "  SPIRV $@"
	@$(OCLOC) compile -spv_only -file $< $(OCLOC_FOR) -output $* -output_no_suffix -out_dir $(@D) \
	    -options "-Werror -cl-std=CL1.2 -Isrc $(OCLOC_FLAGS)" >$(@:.spv=.log) 2>&1 && test -s $@ || \
	    { cat $(@:.spv=.log); rm -f $@; exit 1; }
set_define = -DLW_XPU_SPIRV_$(2)='"$(XPU_OUT)/$(1).spv"'
$(OUT)/src/device/xpu/spirv.o: private CPP_FLAGS += $(if $(filter common,$(XPU_SETS)),$(call set_define,common,COMMON)) \
    $(if $(filter dpas,$(XPU_SETS)),$(call set_define,dpas,DPAS))
$(OUT)/src/device/xpu/spirv.o: $(XPU_SETS:%=$(XPU_OUT)/%.spv) | $(if $(OCLOC),,no-ocloc)
.PHONY: no-ocloc test-xpu
no-ocloc:
	@echo "  no ocloc (Debian: intel-opencl-icd): this build has no kernels for Intel GPUs"

# Fibers switch stacks under the sanitizers' feet: this library and its kernels are never instrumented.
EMULATED_FLAGS := -std=c17 -O2 -g $(NUMBERS) $(WARN) -fPIC -fvisibility=hidden -Isrc -Itests/xpu -D_GNU_SOURCE
# With Level Zero's headers it also is a driver for Level Zero's own loader.
HAS_ZE_HEADERS := $(shell echo '\#include <level_zero/zet_ddi.h>' | $(CC) -E -o /dev/null -xc - 2>/dev/null && echo yes)
EMULATED_SOURCES := $(addprefix tests/xpu/emulated_,ze.c find.c run.c image.c $(if $(HAS_ZE_HEADERS),tables.c))
$(EMULATED): $(EMULATED_SOURCES) $(EMULATED_HEADERS) Makefile
	@mkdir -p $(@D)
	@echo "  LINK $@"
	@$(CC) $(EMULATED_FLAGS) -shared -Wl,--no-undefined -o $@ $(filter %.c,$^) -ldl -pthread

# OpenCL C for this processor. fma has to be an instruction: a call of libm's for each would take for ever. All is
# compiled into the kernel, as compilers for GPUs do: then row counts and code widths are constants there, and no vector is
# handed over in a call, of which -Wpsabi would warn.
CL_FLAGS := -x cl -cl-std=CL3.0 --target=x86_64-pc-linux-gnu -mavx2 -mfma -O3 -fPIC -mllvm -inline-threshold=1000000 $(NUMBERS) \
    -Xclang -cl-ext=+all -Xclang -finclude-default-header -Wno-psabi -Isrc -Itests/xpu -include emulated_builtins.h
$(XPU_OUT)/%.o: src/device/xpu/kernels/%.cl $(XPU_HEADERS) $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	@echo "  CL $<"
	@$(CLANG_CL) $(CL_FLAGS) -c -o $@ $<
$(XPU_OUT)/%.o: tests/xpu/%.cl $(XPU_HEADERS) $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	@echo "  CL $<"
	@$(CLANG_CL) $(CL_FLAGS) -c -o $@ $<
$(XPU_OUT)/emulated_glue.o: tests/xpu/emulated_glue.c $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	@$(CC) $(EMULATED_FLAGS) -c -o $@ $<
$(XPU_OUT)/kernels_cpu.so: $(XPU_KERNELS:src/device/xpu/kernels/%.cl=$(XPU_OUT)/%.o)
$(XPU_OUT)/probe_cpu.so: $(XPU_OUT)/probe.o
$(EMULATED_MODULES): $(XPU_OUT)/emulated_glue.o
	@$(CC) -shared -Wl,--no-undefined,--allow-multiple-definition -o $@ $^ -lm

test-xpu: all $(CANARIES) $(XPU_TESTS) ## all tests of the xpu device, those on Intel's compiler and driver among them
	@$(MAKE) -s venv || echo "pytest is missing: see above"
	@$(RUN) --pytest $(VENV)/bin/python $(foreach p,$(filter tests/xpu/%,$(PYTESTS)),--pytest-file $(p)) \
	    $(call once,$(XPU_TESTS))

# Under the thread sanitizer: what of this device the host does while the emulated one's threads compute. That one
# is not instrumented (EMULATED_FLAGS), so that its fibers need no annotations.
THREADED += unit/xpu_device unit/xpu_emulated law/xpu_chain law/xpu_switches

# Whose entries may be hidden there; see the program.
$(OUT)/tests/unit/xpu_device: private LD_FLAGS += -Wl,--wrap=dlsym
