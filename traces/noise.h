/* Random factors between the predicted and the actual time of a request's work,
 * for the simulator and the engine `timed`. */
#ifndef TRACES_NOISE_H
#define TRACES_NOISE_H

#include <stdint.h>

/* The kind of work. */
enum noise_of { NOISE_PREFILL, NOISE_DECODE };

/*
 * Returns the factor of a request's time: lognormal, of mean 1.
 *   seed, index  of the run, and of the request in it. Nothing else matters,
 *                so a request has the same factor under every policy.
 *   sigma        of the factor's logarithm; 0 = the factor is 1.
 */
double noise_factor(uint64_t seed, uint64_t index, enum noise_of of,
                    double sigma);

#endif
