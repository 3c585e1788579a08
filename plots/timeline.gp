# Lanes of every rank over time.
set xlabel 'Time (ms)'
set ylabel ''
set yrange [-0.6:*]
set xrange [0:*]
set style fill solid 0.8 noborder
y_title = ''
set multiplot
do for [p=1:panels] {
    eval place
    set lmargin at screen 3.2 / width_cm
    set key at screen 0.5, key_height center top maxrows key_rows samplen 1
    plot for [i=panel_first[p]:panel_last[p]] data index i using 1:2:5:6:3:4 with boxxyerror \
        lc rgb hue(variant[i+1]) title columnheader(1), \
        'timeline-rows.dat' using (0):1:ytic(2) with points pt -1 notitle
}
unset multiplot
set output
