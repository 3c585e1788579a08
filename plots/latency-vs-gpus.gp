# Median latency with its 95% interval by order statistics; simulated bars are hatched.
set yrange [0:*]
set xlabel 'Ranks'
y_title = 'Latency of an image (ms)'
set multiplot
do for [p=1:panels] {
    eval place_bars
    plot for [i=panel_first[p]:panel_last[p]] data index i using (measured($1, i)):2:5:6:(0):2 with boxxyerror \
        lc rgb colour(strategy[i+1]) fs solid shade(i+1) border title (simulated[i+1] || is_mark(i) ? '' : columnheader(1)), \
        for [i=panel_first[p]:panel_last[p]] data index i using (computed($1, i)):2:5:6:(0):2 with boxxyerror \
        lc rgb colour(strategy[i+1]) fs pattern hatch(i+1) border title (simulated[i+1] ? columnheader(1) : ''), \
        for [i=panel_first[p]:panel_last[p]] data index i using (shown($1, i)):3:(0):($4 - $3) \
        with vectors heads size graph 0.008, 90 lc rgb '#333333' notitle, @marks
}
unset multiplot
set output
