/* The kernels whose speed matters, for float and double.
 *
 * sort_body.h sorts, bet.h bets, tally_body.h counts scores in a sketch's cells, and
 * calibration_body.h adds up the terms of calibration errors. rows_body.h finds the largest
 * entry of each row and reduces rows to scores; if requested, lengths_body.h divides the rows
 * by their p-norms before:
 *
 * For a row z of C logits let z1 >= z2 be its two largest entries and
 *     e_j = exp((z_j - z2) / T)                      (0 <= e_j <= 1 for j != top)
 *     S  = sum e_j,  S2 = sum e_j^2,  F = sum e_j (z_j - z2) / T     over j != top
 *     u2 = (z2 - z1) / T,  E = exp(u2),  A = E S,  Q = E^2 S2.
 * Then exp(B) = A and exp(B2) = Q in the notation of the Python kernel. The offset z2 keeps
 * a row with a gap of 1000 from underflowing. The top entry is clipped to e = 1 and
 * subtracted from the sum again, which needs no search for its place: the second entry adds
 * exactly 1 as well, so nothing cancels.
 *
 * Each row passes through the same operations wherever it lies in a batch, so
 * its score does not depend on the batch, to the bit.
 *
 * It is compiled for several instruction sets (isa.h), of which the widest that the
 * processor has is taken: one library serves every machine. AVX-512, AVX2 and NEON give
 * the same bits, since sums run in the same lanes and products are fused where FMA says
 * so, and nowhere else (-ffp-contract=off). Baseline x86-64 has no such instruction: it
 * rounds products, and the last bits of a score may differ.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <stdint.h>
#include <string.h>

/* Up to this number of classes, each lane of a vector holds another row, so that short rows
 * waste no lanes and no sum has to be folded across lanes; above it, the lanes hold classes
 * of one row. */
#define SMALL_C 48

/* The bits of a double as an unsigned integer that sorts as the double does: negative
 * numbers are inverted, and of the others only the sign bit. Integers can be cut into
 * digits for a radix sort and into prefixes for the cells of a sketch. */
static inline uint64_t td_key(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

/* The number of low bits of a score's key that are dropped: `shift`, but fewer from 1 up to
 * 32, so that cells there are as wide as between 1/2 and 1: most scores, being log odds, are
 * of that size. */
static inline int td_dropped(double x, int shift) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1022;
    const int more = exponent < 0 ? 0 : exponent < 5 ? exponent : 5;
    return shift > more ? shift - more : 0;
}

/* exp and log by their oldest symbol versions, which are the same functions: a library
 * built on a new system then also loads on one with the glibc of 2014. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver exp, exp@GLIBC_2.2.5\n.symver log, log@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver exp, exp@GLIBC_2.17\n.symver log, log@GLIBC_2.17");
#endif

#include "bet.h"

enum { BETA, ALPHA, MSP, ENTROPY, MARGIN, MAX_LOGIT, ENERGY, PNORM };

#define JOIN(name, type, isa) name##_##type##_##isa
#define JOINED(name, type, isa) JOIN(name, type, isa)
#define JOIN_TWO(name, type) name##_##type
#define JOINED_TWO(name, type) JOIN_TWO(name, type)

/* On x86, max(a, b) is one instruction and means a > b ? a : b. If one of them is NaN, that
 * is the second operand: callers put the running value second to drop NaN, or first to keep
 * it. */
#define X86(name) JOINED(PREFIX, name, SUFFIX)
#define X86_MAX(a, b) ((VEC)X86(max)(a, b))
#define X86_MIN(a, b) ((VEC)X86(min)(a, b))
#define X86_FMA(a, b, c) ((VEC)X86(fmadd)(a, b, c))
#define NEON_FMA(a, b, c) ((VEC)JOINED_TWO(vfmaq, TYPE)(c, a, b))
#define ANY_MAX(a, b) NAME(pick)((a) > (b), a, b)
#define ANY_MIN(a, b) NAME(pick)((a) < (b), a, b)
#define ANY_FMA(a, b, c) ((a) * (b) + (c))

#if defined(__x86_64__)
#define ISA baseline
#define TARGET
#define BYTES 16
#define PREFIX _mm
#define MAX X86_MAX
#define MIN X86_MIN
#define FMA ANY_FMA
#include "isa.h"

#define ISA avx2
#define TARGET , target("avx2,fma")
#define BYTES 32
#define PREFIX _mm256
#define MAX X86_MAX
#define MIN X86_MIN
#define FMA X86_FMA
#include "isa.h"

#define ISA avx512
#define TARGET , target("avx512f,avx512dq,avx512bw,avx512vl,fma")
#define BYTES 64
#define PREFIX _mm512
#define MAX X86_MAX
#define MIN X86_MIN
#define FMA X86_FMA
#include "isa.h"

#elif defined(__aarch64__)
#define ISA neon
#define TARGET
#define BYTES 16
#define MAX ANY_MAX
#define MIN ANY_MIN
#define FMA NEON_FMA
#include "isa.h"

#else
#define ISA baseline
#define TARGET
#define BYTES 16
#define MAX ANY_MAX
#define MIN ANY_MIN
#define FMA ANY_FMA
#include "isa.h"
#endif

/* Raised with every change of a function's arguments: _native/__init__.py does not use a
 * library of another version. */
int td_version(void) { return 3; }

/* The instruction sets, narrowest first; td_has says whether this processor has one. */
enum { BASELINE, AVX2, AVX512, NEON };

int td_has(int isa) {
#if defined(__x86_64__)
    if (isa == AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (isa == AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if defined(__aarch64__)
    return isa == NEON;
#else
    return isa == BASELINE;
#endif
}

#define REAL float
#define UINT uint32_t
#define PLAIN(name) name##_f32
#define TYPE f32
#include "entry.h"
#include "sort_body.h"
#include "tally_body.h"
#undef REAL
#undef UINT
#undef PLAIN
#undef TYPE

#define REAL double
#define UINT uint64_t
#define PLAIN(name) name##_f64
#define TYPE f64
#include "entry.h"
#include "sort_body.h"
#include "tally_body.h"
