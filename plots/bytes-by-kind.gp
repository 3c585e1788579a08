# What the bytes are that the rank that sends most sends, per step, at the largest number of ranks.
set yrange [0:*]
y_title = 'Sent per rank and step (KiB)'
set multiplot
do for [p=1:panels] {
    eval place_bars
    plot for [i=panel_first[p]:panel_last[p]] data index i using (measured($1, i)):4:5:6:3:4 with boxxyerror \
        lc rgb hue(variant[i+1]) fs solid 0.85 border title (simulated[i+1] ? '' : columnheader(1)), \
        for [i=panel_first[p]:panel_last[p]] data index i using (computed($1, i)):4:5:6:3:4 with boxxyerror \
        lc rgb hue(variant[i+1]) fs pattern hatch(i+1) border title (simulated[i+1] ? columnheader(1) : '')
}
unset multiplot
set output
