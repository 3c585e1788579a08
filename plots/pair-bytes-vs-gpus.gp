# What the rank that sends most sends in a pair of blocks of a video model, per step.
set yrange [0:*]
set logscale x 2
set xtics (1, 2, 4, 8, 16, 32, 64, 128)
set offsets graph 0.05, graph 0.05, 0, 0
set xlabel 'Ranks'
y_title = 'Sent per rank, step and pair (MiB)'
set multiplot
do for [p=1:panels] {
    eval place
    plot for [i=panel_first[p]:panel_last[p]] data index i using (shown($1, i)):2 with linespoints \
        lc rgb colour(strategy[i+1]) dt dash(variant[i+1]) pt point(i+1) ps size title (is_mark(i) ? '' : columnheader(1)), @marks
}
unset multiplot
set output
