/* The bodies for one instruction set: vectors of BYTES, functions with TARGET. LANES is
 * the number of lanes in which the sums over a row run, the same for every instruction set
 * (a vector of AVX-512), so that they round alike. EXP_TERMS are the coefficients of the
 * minimax polynomial of exp on [-log(2) / 2, log(2) / 2], in relative error and with the
 * last two fixed to 1: within 4e-9 (float) and 1.1e-17 (double). ROUND_MAGIC is 1.5 * 2^23
 * or 1.5 * 2^52: adding it rounds to an integer, which is then in the last bits.
 * LN2_HI + LN2_LO is log(2) in two parts, of which the first times k is exact (Cody and
 * Waite, 1980). */
#define TD_INLINE static inline __attribute__((always_inline TARGET))
#define TD_ENTRY __attribute__((noinline TARGET)) static
#define WIDTH ((int)(BYTES / sizeof(REAL)))

#define REAL float
#define UINT uint32_t
#define INT int32_t
#define TYPE f32
#define SUFFIX ps
#define NAME(x) JOINED(x, TYPE, ISA)
#define LANES 16
#define MANTISSA 23
#define BIAS 127
#define EXP_TERMS                                                                          \
    {1.3814610438e-03f, 8.3687111270e-03f, 4.1668387489e-02f, 1.6666520679e-01f,       \
     4.9999993451e-01f, 1, 1}
#define LOG_TERMS 5
#define EXP_LOWEST -88.0f
#define ROUND_MAGIC 12582912.0f
#define LN2_HI 0.693359375f
#define LN2_LO -2.12194440e-4f
#define LARGE 1e30f
#define SHRINK 0x1p-100f
#define NORMAL 1e-37f
#include "rows_body.h"
#include "calibration_body.h"
#include "undef.h"

#define REAL double
#define UINT uint64_t
#define INT int64_t
#define TYPE f64
#define SUFFIX pd
#define NAME(x) JOINED(x, TYPE, ISA)
#define LANES 8
#define MANTISSA 52
#define BIAS 1023
#define EXP_TERMS                                                                          \
    {2.5000068764497291583e-08, 2.7630236634783468055e-07, 2.7557586290700744531e-06,   \
     2.4801493129181186542e-05, 1.9841269506738131799e-04, 1.3888888943603790560e-03,   \
     8.3333333334943585248e-03, 4.1666666666530245801e-02, 1.6666666666666412727e-01,   \
     5.0000000000000106187e-01, 1, 1}
#define LOG_TERMS 11
#define EXP_LOWEST -709.2
#define ROUND_MAGIC 6755399441055744.0
#define LN2_HI 6.93147180369123816490e-01
#define LN2_LO 1.90821492927058770002e-10
#define LARGE 1e290
#define SHRINK 0x1p-600
#define NORMAL 1e-307
#include "rows_body.h"
#include "calibration_body.h"
#include "undef.h"

#undef TD_INLINE
#undef TD_ENTRY
#undef WIDTH
#undef ISA
#undef TARGET
#undef BYTES
#undef PREFIX
#undef MAX
#undef MIN
#undef FMA
