# Shared by all figures: output, fonts, one fixed colour a strategy (Okabe and Ito, safe for colour-blind
# readers; yellow is darkened to be seen on white), dash and point type by variant.
if (!exists("format")) format = 'pdf'
if (!exists("output")) output = name . '.' . format
panels = |panel_title|
most_series = 0
do for [p=1:panels] { n = panel_last[p] - panel_first[p] + 1; if (n > most_series) { most_series = n } }
panel_cm = panels > 1 ? 5.9 : 10.4
width_cm = panels * panel_cm + 0.6
key_columns = int(width_cm / 5.2) # gnuplot drops entries that do not fit
key_rows = (most_series + key_columns - 1) / key_columns
height_cm = 6.2 + 0.36 * key_rows
if (format eq 'pdf') {
    set terminal pdfcairo font 'DejaVu Sans,8' size width_cm cm, height_cm cm linewidth 1.3
} else { if (format eq 'png') {
    set terminal pngcairo font 'DejaVu Sans,10' size int(width_cm * 60), int(height_cm * 60) linewidth 1.5
} else {
    set terminal svg font 'DejaVu Sans,12' size int(width_cm * 44), int(height_cm * 44) linewidth 1.5 background rgb 'white'
} }
size = format eq 'pdf' ? 0.55 : 0.85
set output output
colour(s) = \
    s eq 'serial'       ? '#000000' : s eq 'tp'         ? '#0072B2' : s eq 'tp-sp'   ? '#56B4E9' : \
    s eq 'tp-stale'     ? '#D55E00' : s eq 'ulysses'    ? '#CC79A7' : s eq 'ring'    ? '#B8A800' : \
    s eq 'distrifusion' ? '#009E73' : s eq 'pipefusion' ? '#E69F00' : s eq 'usp'     ? '#882255' : \
    s eq 'tsp'          ? '#332288' : s eq 'dsp'        ? '#117733' : '#777777'
array dashes[6] = [1, 2, 4, 3, 5, 6]
dash(v) = dashes[(v - 1) % 6 + 1]
array points[8] = [7, 5, 9, 13, 6, 4, 8, 12]
point(v) = points[(v - 1) % 8 + 1]
set border 3
set tics nomirror out
set grid ytics lc rgb '#dddddd' lw 0.6
set key off
if (strlen(note)) { set label 1 note at screen 0.01, 0.015 left font ',7' tc rgb '#555555' }
# Panels above, one key for all below: the key of the panel with most series, drawn beneath it.
key_height = (0.55 + 0.36 * key_rows) / height_cm
set tmargin at screen 0.93
set bmargin at screen key_height + 1.0 / height_cm
left(p) = (0.6 + (p - 1) * panel_cm + 1.25) / width_cm
right(p) = (0.6 + p * panel_cm - 0.25) / width_cm
# The label of the y axis has a place of its own: gnuplot drops one that wide tics push off the canvas.
label_x = 0.35 / width_cm
