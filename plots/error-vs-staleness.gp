# Error against the staleness of the partial sums. Staleness 0 is exact up to rounding.
set yrange [0:*]
set xtics 1
set xrange [-0.2:*]
set xlabel 'Staleness (steps)'
y_title = 'Error of the image (relative L2)'
set multiplot
do for [p=1:panels] {
    eval place
    plot for [i=panel_first[p]:panel_last[p]] data index i using 1:2:3:4 with yerrorlines \
        lc rgb colour(strategy[i+1]) dt dash(variant[i+1]) pt point(i+1) ps size title columnheader(1)
}
unset multiplot
set output
