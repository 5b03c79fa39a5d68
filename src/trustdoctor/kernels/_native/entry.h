/* The exported functions for one type; `isa` selects the instruction set. */
#if defined(__x86_64__)
#define CALL(isa, name, ...)                                       \
    if (isa == AVX512) return JOINED(name, TYPE, avx512)(__VA_ARGS__); \
    if (isa == AVX2) return JOINED(name, TYPE, avx2)(__VA_ARGS__);     \
    return JOINED(name, TYPE, baseline)(__VA_ARGS__)
#elif defined(__aarch64__)
#define CALL(isa, name, ...)  \
    (void)isa;                \
    return JOINED(name, TYPE, neon)(__VA_ARGS__)
#else
#define CALL(isa, name, ...)  \
    (void)isa;                \
    return JOINED(name, TYPE, baseline)(__VA_ARGS__)
#endif

int64_t PLAIN(td_score)(int isa, const REAL *z, int64_t rows, int64_t classes,
                        double temperature, double power, const int *kinds, int n_kinds,
                        REAL *scratch, REAL *out) {
    CALL(isa, score, z, rows, classes, temperature, power, kinds, n_kinds, scratch, out);
}

void PLAIN(td_argmax)(int isa, const REAL *z, int64_t rows, int64_t classes, int64_t *out) {
    CALL(isa, argmax, z, rows, classes, out);
}

void PLAIN(td_calibration)(int isa, const REAL *alpha, const REAL *beta,
                           const uint8_t *wrong, const double *missed, int64_t n,
                           int64_t *out) {
    CALL(isa, calibration, alpha, beta, wrong, missed, n, out);
}
#undef CALL
