/* The sampler's schedule, in double precision: rounding here would shift every step (DDIM,
 * arXiv:2010.02502). */
#include "kernels/model.h"

enum { TRAINING_STEPS = 1000 };

double model_alpha(int timestep)
{
    static const double first = 1e-4, last = 2e-2;
    double alpha = 1;
    ASSERT_CMP(timestep, >=, -1);
    ASSERT_CMP(timestep, <, TRAINING_STEPS);
    for (int t = 0; t <= timestep; t++)
        alpha *= 1 - (first + (last - first) * t / (TRAINING_STEPS - 1));
    return alpha;
}

int model_timestep(int step, int steps)
{
    ASSERT_CMP(steps, >, 0);
    ASSERT_CMP(steps, <=, TRAINING_STEPS);
    ASSERT_CMP(step, >=, 0);
    ASSERT_CMP(step, <, steps);
    return (steps - 1 - step) * (TRAINING_STEPS / steps);
}
