# Shared by all figures: output, fonts, one fixed colour a strategy (Okabe and Ito, safe for colour-blind
# readers; yellow is darkened to be seen on white), dash and point type by variant, place of the panels.
if (!exists("format")) format = 'pdf'
if (!exists("output")) output = name . '.' . format
if (!exists("page")) page = 'auto'
if (!exists("tic_letters")) tic_letters = 0
panels = |panel_title|
most_series = 0
key_panel = 1
do for [p=1:panels] {
    n = panel_last[p] - panel_first[p] + 1
    if (n > most_series) { most_series = n; key_panel = p }
}
# Panels stand beside each other; for a single column below each other.
columns = page eq 'single' ? 1 : page eq 'double' ? (panels < 3 ? panels : 3) : panels
rows = (panels + columns - 1) / columns
panel_cm = page eq 'single' ? 8.0 : page eq 'double' ? 17.2 / columns : panels > 1 ? 5.9 : 10.4
width_cm = columns * panel_cm + 0.6
key_columns = int(width_cm / 5.2) # gnuplot drops entries that do not fit
if (key_columns < 1) { key_columns = 1 }
key_rows = (most_series + key_columns - 1) / key_columns
tics_cm = tic_letters > 4 ? 0.09 * tic_letters : 0 # long names are rotated
row_cm = 5.9 + tics_cm
key_cm = 0.55 + 0.36 * key_rows
note_cm = 0.3 * note_lines
height_cm = rows * row_cm + key_cm + note_cm
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
array hues[8] = ['#0072B2', '#D55E00', '#009E73', '#E69F00', '#56B4E9', '#CC79A7', '#B8A800', '#777777']
hue(v) = hues[(v - 1) % 8 + 1]
array dashes[6] = [1, 2, 4, 3, 5, 6]
dash(v) = dashes[(v - 1) % 6 + 1]
array points[8] = [7, 5, 9, 13, 11, 15, 2, 1]
array hollow[8] = [6, 4, 8, 12, 10, 14, 3, 1]
point(i) = simulated[i] ? hollow[(variant[i] - 1) % 8 + 1] : points[(variant[i] - 1) % 8 + 1]
# Bars: shades tell variants of a strategy apart; simulated ones are hatched.
array shades[4] = [1.0, 0.45, 0.75, 0.25]
shade(i) = shades[(variant[i] - 1) % 4 + 1]
hatch(i) = 4 + variant[i] % 4
# A mark stands where a value would, had the point not been refused or failed; its label says which.
is_mark(block) = strategy[block+1] eq 'mark'
marked(x, block) = is_mark(block) ? x : NaN
shown(x, block) = is_mark(block) ? NaN : x
marks = "for [i=panel_first[p]:panel_last[p]] data index i using (marked($1, i)):(0) with points ".\
    "lc rgb '#555555' pt 2 ps size title (is_mark(i) ? columnheader(1) : ''), ".\
    "for [i=panel_first[p]:panel_last[p]] data index i using (marked($1, i)):(0):7 with labels ".\
    "rotate by 90 left offset 0, 0.6 font ',6' tc rgb '#555555' notitle"
measured(x, block) = simulated[block+1] ? NaN : shown(x, block)
computed(x, block) = simulated[block+1] ? x : NaN
set border 3
set tics nomirror out
set grid ytics lc rgb '#dddddd' lw 0.6
set key off
set pointintervalbox 0
if (note_lines) { set label 1 note at screen 0.01, (note_cm - 0.15) / height_cm left font ',7' tc rgb '#555555' }
# Panels above, one key for all below: the key of the panel with most series, drawn beneath it.
key_height = (key_cm + note_cm) / height_cm
column_of(p) = (p - 1) % columns
row_of(p) = (p - 1) / columns
left(p) = (0.6 + column_of(p) * panel_cm + 1.25) / width_cm
right(p) = (0.6 + (column_of(p) + 1) * panel_cm - 0.25) / width_cm
top(p) = 1 - (row_of(p) * row_cm + 0.5) / height_cm
bottom(p) = 1 - ((row_of(p) + 1) * row_cm - tics_cm - 1.25) / height_cm
set tmargin at screen top(1)
set bmargin at screen bottom(1)
# The label of the y axis has a place of its own: gnuplot drops one that wide tics push off the canvas.
label_x = 0.35 / width_cm
# Called as `eval place` before the plot of panel p; y_title names the y axis.
place = "set lmargin at screen left(p); set rmargin at screen right(p); set tmargin at screen top(p); ".\
    "set bmargin at screen bottom(p); set title panel_title[p] offset 0, -0.6; unset label 2; ".\
    "if (column_of(p) == 0) { set label 2 y_title at screen label_x, graph 0.5 center rotate }; ".\
    "if (p == key_panel) { set key at screen 0.5, key_height center top maxrows key_rows samplen 3 } ".\
    "else { set key off }"
# The same for bars.
place_bars = "eval place; set xrange [-0.6:panel_bars[p] - 0.4]; ".\
    "eval 'set xtics ('.panel_tics[p].') '.(tic_letters > 4 ? 'rotate by 35 right' : '')"
