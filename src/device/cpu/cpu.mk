# How the cpu device is compiled. Read by the Makefile.
# Flags of one instruction set stand only on the files of its folder; the choice is made at run time.
# The kernels are written for the vectoriser; it does not change any sum without fast-math.
AVX512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
$(OUT)/src/device/cpu/%.o: private OPT := -O3 -g1
$(OUT)/src/device/cpu/avx2/%.o: private ISA := -mavx2 -mfma -mf16c
$(OUT)/src/device/cpu/avx512/%.o: private ISA := $(AVX512)
$(OUT)/src/device/cpu/avx512bf16/%.o: private ISA := $(AVX512) -mavx512bf16
$(OUT)/src/device/cpu/avx512vnni/%.o: private ISA := $(AVX512) -mavx512vnni
