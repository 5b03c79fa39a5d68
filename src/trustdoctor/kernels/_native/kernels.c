/* The kernels whose speed matters, for float and double.
 *
 * sort_body.h sorts. tally_body.h counts scores in a sketch's cells, and
 * calibration_body.h sums up what rows say of the softmax. rows_body.h finds the largest entry of each row, and reduces rows of logits to scores:
 *
 * For a row z of C logits let z1 >= z2 be its two largest entries and
 *     e_j = exp((z_j - z2) / T)                      (0 <= e_j <= 1 for j != top)
 *     S  = sum e_j,  S2 = sum e_j^2,  F = sum e_j (z_j - z2) / T     over j != top
 *     u2 = (z2 - z1) / T,  E = exp(u2),  A = E S,  Q = E^2 S2.
 * Then exp(B) = A and exp(B2) = Q in the notation of the Python kernel. The
 * offset z2 is what keeps a row with a gap of 1000 from underflowing. The top
 * entry is clipped to e = 1 and taken off the sum again: the second entry adds
 * exactly 1 as well, so nothing cancels.
 *
 * Each row passes through the same operations wherever it lies in a batch, so
 * its score does not depend on the batch, to the bit.
 *
 * On x86-64 it is compiled for three instruction sets, and td_score picks one by
 * what the processor has: one library serves every machine.
 */
#include <stdint.h>
#include <string.h>

#define TD_INLINE static inline __attribute__((always_inline))

/* Up to this many classes, rows run in parallel lanes; above it, the classes
 * of one row do. */
#define SMALL_C 48

#define HAS_AVX512                                                            \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && \
     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))

/* Keep the order of doubles. */
TD_INLINE uint64_t td_key(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

/* How many bits of a score's key do not count: `shift`, but fewer from 1 up to 32,
 * so that cells there are as wide as between 1/2 and 1. */
TD_INLINE int td_dropped(double x, int shift) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1022;
    const int more = exponent < 0 ? 0 : exponent < 5 ? exponent : 5;
    return shift > more ? shift - more : 0;
}

enum { BETA, ALPHA, MSP, ENTROPY, MARGIN, MAX_LOGIT, ENERGY };

#define REAL float
#define UINT uint32_t
#define INT int32_t
#define NAME(x) x##_f32
#define LANES 16
#define MANTISSA 23
#define BIAS 127
#define EXP_TERMS 7
#define LOG_TERMS 5
#define EXP_LOWEST -87.0f
#define ROUND_MAGIC 12582912.0f
#define LN2_HI 0.693359375f
#define LN2_LO -2.12194440e-4f
#include "rows_body.h"
#include "sort_body.h"
#include "tally_body.h"
#include "calibration_body.h"
#include "undef.h"

#define REAL double
#define UINT uint64_t
#define INT int64_t
#define NAME(x) x##_f64
#define LANES 8
#define MANTISSA 52
#define BIAS 1023
#define EXP_TERMS 13
#define LOG_TERMS 11
#define EXP_LOWEST -708.0
#define ROUND_MAGIC 6755399441055744.0
#define LN2_HI 6.93147180369123816490e-01
#define LN2_LO 1.90821492927058770002e-10
#include "rows_body.h"
#include "sort_body.h"
#include "tally_body.h"
#include "calibration_body.h"
#include "undef.h"
