# What the rank that sends most sends, per step: mean over synchronous and stale steps.
set yrange [0:*]
set logscale x 2
set xtics (1, 2, 4, 8, 16, 32, 64, 128)
set offsets graph 0.05, graph 0.05, 0, 0
set multiplot
do for [p=1:panels] {
    set lmargin at screen left(p)
    set rmargin at screen right(p)
    set title panel_title[p] offset 0, -0.6
    set xlabel 'Ranks'
    if (p == 1) { set label 2 'Sent per rank and step (KiB)' at screen label_x, graph 0.5 center rotate } else { unset label 2 }
    if (p == 1) { set key at screen 0.5, key_height center top maxrows key_rows samplen 3 } else { set key off }
    plot for [i=panel_first[p]:panel_last[p]] data index i using 1:2:3:4 with yerrorlines \
        lc rgb colour(strategy[i+1]) dt dash(variant[i+1]) pt point(variant[i+1]) ps size title columnheader(1)
}
unset multiplot
set output
