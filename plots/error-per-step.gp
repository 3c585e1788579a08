# How the error grows from step to step.
set logscale y
set yrange [1e-4:*] # warm-up steps lie at rounding, far below
set format y '10^{%T}'
set xlabel 'Denoising step'
y_title = 'Error of the latent (relative L2)'
set multiplot
do for [p=1:panels] {
    eval place
    plot for [i=panel_first[p]:panel_last[p]] data index i using 1:2:3:4 with yerrorlines \
        lc rgb colour(strategy[i+1]) dt dash(variant[i+1]) pt point(i+1) ps size title columnheader(1)
}
unset multiplot
set output
