# Published against predicted seconds, both logarithmic; the lines are equality and a factor of 1.35.
set logscale xy
set xlabel 'Published (s)'
set ylabel 'Predicted (s)'
set lmargin at screen left(1)
set rmargin at screen right(1)
set title panel_title[1] offset 0, -0.6
set key at graph 0.02, 0.98 left top samplen 1 maxrows 8
strategies = "serial tp pipefusion distrifusion ulysses ring usp tp-sp tsp"
is(column, name, value) = strcol(column) eq name ? value : 1/0
plot x with lines lc rgb '#999999' dt 1 notitle, \
    x * 1.35 with lines lc rgb '#bbbbbb' dt 3 notitle, x / 1.35 with lines lc rgb '#bbbbbb' dt 3 notitle, \
    data index 1 using 5:6 with points lc rgb '#bbbbbb' pt 6 ps 0.6 title 'calibrated on', \
    data index 2 using 5:6 with points lc rgb '#bbbbbb' pt 2 ps 0.5 title 'apart', \
    for [s in strategies] data index 0 using (is(1, s, $5)):6 with points lc rgb colour(s) pt 7 ps 0.6 title s
set output
