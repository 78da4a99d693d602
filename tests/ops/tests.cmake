mla_tests(ops kernels TESTS gemm gemm_f8 swiglu packed rows self_test routing UP_TO attention LABELS kernels)
mla_test(ops gemm_bits UP_TO attention LABELS kernels threads)
mla_tests(ops counts TESTS gemm_counts UP_TO attention)
mla_test(ops packed_fp8)
